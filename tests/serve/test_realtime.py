"""The WebSocket: OpenAI's client and events, utterances as they end, and what is wrong with a message."""

import base64
import json
from contextlib import suppress
from itertools import takewhile

import numpy as np
import openai
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

import attune
from attune.audio.decode import resample
from attune.serve.realtime import Session
from attune.serve.settings import ServerSettings

from serving import DEMO, demo_clips, running

pytestmark = pytest.mark.recipe

COMPLETED = "conversation.item.input_audio_transcription.completed"
DELTA = "conversation.item.input_audio_transcription.delta"


@pytest.fixture(scope="module")
def recognizer():
    return attune.load(DEMO / "model")


@pytest.fixture(scope="module")
def server(recognizer):
    with running({"demo": recognizer}) as address:
        yield address


@pytest.fixture(scope="module")
def talk():
    """Three utterances with a second of silence after each."""
    return np.concatenate([np.pad(attune.load_audio(path), (8_000, 16_000)) for path, _ in demo_clips()[:3]])


def pcm(samples, rate):
    return (resample(samples, 16_000, rate) * 32767).astype("<i2").tobytes()


def completed(events):
    return [event["transcript"] for event in events if event["type"] == COMPLETED]


@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")  # websockets in openai
def test_the_official_client_holds_a_session(server, talk):
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="any")
    sound = pcm(talk, 24_000)
    with client.realtime.connect(model="demo") as connection:
        session = {"type": "transcription", "audio": {"input": {"transcription": {"model": "demo"}}}}
        connection.session.update(session=session)
        for start in range(0, len(sound), 9_600):  # 0.2 s
            connection.input_audio_buffer.append(audio=base64.b64encode(sound[start : start + 9_600]).decode())
        connection.input_audio_buffer.commit()
        events = list(takewhile(lambda event: event.type != "input_audio_buffer.committed", connection))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["session.created", "session.updated"] and kinds.count(COMPLETED) == 3
    assert all(event.transcript for event in events if event.type == COMPLETED)
    assert kinds.index("input_audio_buffer.speech_started") < kinds.index("input_audio_buffer.speech_stopped")


def stream(address, sound, step, rate=16_000):
    with connect(address.replace("http", "ws") + f"/v1/realtime?rate={rate}") as socket:
        for start in range(0, len(sound), step):
            socket.send(sound[start : start + step])
        socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
        events = [json.loads(socket.recv(timeout=60))]
        while events[-1]["type"] != "input_audio_buffer.committed":
            events.append(json.loads(socket.recv(timeout=60)))
    return events


def test_how_the_audio_is_cut_into_messages_changes_no_final_result(server, talk):
    sound = pcm(talk, 16_000)
    results = [completed(stream(server, sound, step)) for step in (333, 3_200, len(sound))]
    assert len(results[0]) == 3 and results[0] == results[1] == results[2]


def test_words_come_while_an_utterance_goes_on(server, recognizer):
    """An utterance of some seconds; its deltas are words of the transcript so far, in their order."""
    samples = np.concatenate([attune.load_audio(path) for path, _ in demo_clips()[:3]])
    sound = pcm(np.pad(samples, (8_000, 16_000)), 16_000)
    with connect(server.replace("http", "ws") + "/v1/realtime?rate=16000") as socket:
        kinds = []
        for start in range(0, len(sound), 32_000):
            socket.send(sound[start : start + 32_000])
            with suppress(TimeoutError):
                while DELTA not in kinds:  # then the rest may come at once
                    kinds.append(json.loads(socket.recv(timeout=1))["type"])
        while COMPLETED not in kinds:
            kinds.append(json.loads(socket.recv(timeout=30))["type"])
    assert DELTA in kinds and kinds.index(DELTA) < kinds.index(COMPLETED)


def session(**settings):
    return json.dumps({"type": "session.update", "session": {"type": "transcription", "audio": {"input": settings}}})


def test_without_turn_detection_an_utterance_ends_where_the_client_commits_it(server, recognizer, talk):
    sound = pcm(talk, 16_000)
    with connect(server.replace("http", "ws") + "/v1/realtime?rate=16000") as socket:
        socket.send(session(turn_detection=None))
        socket.send(session(transcription={"language": "en"}))  # and what was said before holds
        events = []
        for _ in range(2):
            for start in range(0, len(sound), 32_000):
                socket.send(sound[start : start + 32_000])
            socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
            events.append(json.loads(socket.recv(timeout=60)))
            while events[-1]["type"] != "input_audio_buffer.committed":
                events.append(json.loads(socket.recv(timeout=60)))
    first, second = (each for each in events if each["type"] == COMPLETED)
    heard = np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(32768)
    assert first["transcript"] == second["transcript"] == recognizer.transcribe(heard)
    shift = second["words"][0]["start"] - first["words"][0]["start"]
    assert shift == pytest.approx(len(talk) / 16_000, abs=0.01)
    items = [each["item_id"] for each in events if each["type"].endswith(".committed")]
    assert items == [first["item_id"], second["item_id"]] and items[0] != items[1]
    assert not [each for each in events if "speech_" in each["type"] or each["type"] == DELTA]


def test_a_commit_has_the_last_sample_at_any_rate(server, talk, monkeypatch):
    found = []
    asked = Session._transcript

    def counted(self, span):
        found.append(len(span.samples))
        return asked(self, span)

    monkeypatch.setattr(Session, "_transcript", counted)
    for rate in (16_000, 24_000, 48_000):
        with connect(server.replace("http", "ws") + f"/v1/realtime?rate={rate}") as socket:
            socket.send(session(turn_detection=None))
            for _ in range(2):
                socket.send(pcm(talk[:16_000], rate))
                socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
                while json.loads(socket.recv(timeout=60))["type"] != "input_audio_buffer.committed":
                    pass
    assert found == [16_000] * 6


def test_a_commit_names_the_utterance_that_it_ended(server, talk):
    events = stream(server, pcm(talk, 16_000)[: -2 * 12_000], 3_200)
    finals = [each["item_id"] for each in events if each["type"] == COMPLETED]
    assert events[-1]["item_id"] == finals[-1] and len(set(finals)) == len(finals)


def test_a_buffer_that_is_never_committed_has_an_end(server, monkeypatch):
    monkeypatch.setattr("attune.serve.realtime.BUFFER_SECONDS", 1.0)
    with connect(server.replace("http", "ws") + "/v1/realtime?rate=16000") as socket:
        socket.send(session(turn_detection=None))
        for _ in range(3):
            socket.send(b"\0\0" * 16_000)
        found = [json.loads(socket.recv(timeout=20)) for _ in range(3)]
        assert [each["type"] for each in found] == ["session.created", "session.updated", "error"]
        assert "Commit it, or clear it" in found[-1]["error"]["message"]
        socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
        assert json.loads(socket.recv(timeout=20))["type"] == COMPLETED


def test_a_message_that_is_wrong_is_answered_and_the_session_goes_on(server, talk):
    with connect(server.replace("http", "ws") + "/v1/realtime?rate=16000") as socket:
        assert json.loads(socket.recv())["type"] == "session.created"
        for wrong in ("no json", "[]", '{"type": "dance"}', '{"type": "input_audio_buffer.append", "audio": "€"}'):
            socket.send(wrong)
            answer = json.loads(socket.recv(timeout=20))
            assert answer["type"] == "error" and answer["error"]["message"]
        socket.send(json.dumps({"type": "input_audio_buffer.clear"}))
        assert json.loads(socket.recv(timeout=20))["type"] == "input_audio_buffer.cleared"


@pytest.mark.parametrize("query", ["rate=1", "rate=fast", f"rate={'9' * 5000}", "model=nope"])
def test_an_address_that_is_wrong_is_answered_with_an_error_event(query, recognizer):
    with (
        running({"demo": recognizer, "other": recognizer}) as address,
        connect(address.replace("http", "ws") + f"/v1/realtime?{query}") as socket,
    ):
        answer = json.loads(socket.recv(timeout=20))
        assert answer["type"] == "error" and answer["error"]["param"] == query.partition("=")[0]
        with pytest.raises(ConnectionClosedError) as closed:
            socket.recv(timeout=20)
        assert closed.value.rcvd.code == 1008


def test_a_pause_that_is_no_number_is_the_usual_one(server, talk):
    strange = f'{{"silence_duration_ms": NaN, "prefix_padding_ms": 1{"0" * 400}}}'
    with connect(server.replace("http", "ws") + "/v1/realtime?rate=16000") as socket:
        socket.send(f'{{"type": "session.update", "session": {{"turn_detection": {strange}}}}}')
        socket.send(pcm(talk, 16_000))
        kinds = []
        while COMPLETED not in kinds:
            kinds.append(json.loads(socket.recv(timeout=60))["type"])
        assert "error" not in kinds


def test_a_socket_needs_the_token_too(recognizer):
    with running({"demo": recognizer}, ServerSettings(token="right")) as address:
        url = address.replace("http", "ws") + "/v1/realtime?rate=16000"
        with pytest.raises(InvalidStatus):
            connect(url)
        with connect(url, subprotocols=["realtime", "openai-insecure-api-key.right"]) as socket:
            assert socket.subprotocol == "realtime" and json.loads(socket.recv())["type"] == "session.created"
