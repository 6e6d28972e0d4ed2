"""The WebSocket: OpenAI's client and events, utterances as they end, and what is wrong with a message."""

import base64
import json
from contextlib import suppress
from itertools import takewhile

import numpy as np
import openai
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import attune
from attune.audio.decode import resample
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


def test_a_message_that_is_wrong_is_answered_and_the_session_goes_on(server, talk):
    with connect(server.replace("http", "ws") + "/v1/realtime?rate=16000") as socket:
        assert json.loads(socket.recv())["type"] == "session.created"
        for wrong in ("no json", "[]", '{"type": "dance"}', '{"type": "input_audio_buffer.append", "audio": "€"}'):
            socket.send(wrong)
            answer = json.loads(socket.recv(timeout=20))
            assert answer["type"] == "error" and answer["error"]["message"]
        socket.send(json.dumps({"type": "input_audio_buffer.clear"}))
        assert json.loads(socket.recv(timeout=20))["type"] == "input_audio_buffer.cleared"


def test_a_socket_needs_the_token_too(recognizer):
    with running({"demo": recognizer}, ServerSettings(token="right")) as address:
        url = address.replace("http", "ws") + "/v1/realtime?rate=16000"
        with pytest.raises(InvalidStatus):
            connect(url)
        with connect(url, subprotocols=["realtime", "openai-insecure-api-key.right"]) as socket:
            assert socket.subprotocol == "realtime" and json.loads(socket.recv())["type"] == "session.created"
