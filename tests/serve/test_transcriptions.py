"""The server as clients see it: the official client's types, statuses of what is wrong, equal answers for all."""

import http.client
import io
import itertools
import json
import math
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import soundfile

import attune
from attune.cli import main
from attune.serve.app import COUNTED
from attune.serve.settings import ServerLimits, ServerSettings

from serving import DEMO, demo_clips, running
from tiny_whisper import write_whisper

pytestmark = pytest.mark.recipe

TRANSCRIPTIONS = "/v1/audio/transcriptions"


@pytest.fixture(scope="module")
def recognizer():
    return attune.load(DEMO / "model")


@pytest.fixture(scope="module")
def server(recognizer):
    with running({"demo": recognizer, "again": recognizer}) as address:
        yield address


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server}/v1", api_key="any", max_retries=0)


@pytest.fixture(scope="module")
def clips():
    return [path for path, _ in demo_clips()]


@pytest.fixture(scope="module")
def long_recording(clips):
    """Some minutes of speech with pauses."""
    pause = np.zeros(12_000, np.float32)
    samples = np.concatenate([each for path in clips[:40] for each in (attune.load_audio(path), pause)])
    written = io.BytesIO()
    soundfile.write(written, samples, 16_000, format="FLAC")
    return "long.flac", written.getvalue()


def post(address, path=TRANSCRIPTIONS, headers=None, **fields):
    files = {"file": fields.pop("file", ("a.wav", b"RIFF"))}
    return httpx.post(address + path, data=fields, files=files, headers=headers or {}, timeout=60)


def test_every_format_parses_into_the_clients_types(client, clips, recognizer):
    (expected,) = recognizer.transcribe_detailed([clips[0]])

    def ask(format, **more):
        return client.audio.transcriptions.create(model="demo", file=clips[0], response_format=format, **more)

    assert ask("json").text == expected.text == ask("text").strip()
    verbose = ask("verbose_json", timestamp_granularities=["word", "segment"])
    assert (verbose.text, verbose.duration) == (expected.text, pytest.approx(demo_clips()[0][1]["seconds"], abs=0.01))
    assert [(each.word, each.start, each.end) for each in verbose.words] == [
        (each.text, each.start, each.end) for each in expected.words
    ]
    assert verbose.segments[0].text == expected.text and verbose.segments[0].avg_logprob < 0
    logprobs = ask("json", include=["logprobs"]).logprobs
    assert [each.logprob for each in logprobs] == pytest.approx(
        [math.log(each.confidence) for each in expected.words], abs=1e-3
    )


def test_silence_has_no_words_in_any_format(tmp_path):
    write_whisper(tmp_path)
    written = io.BytesIO()
    soundfile.write(written, np.zeros(32_000, np.float32), 16_000, format="WAV")
    with running({"whisper": attune.load(tmp_path, "cpu")}) as address:

        def ask(format):
            return post(address, file=("a.wav", written.getvalue()), model="whisper", response_format=format)

        found = {format: ask(format) for format in ("json", "text", "verbose_json", "srt", "vtt")}
    assert {each.status_code for each in found.values()} == {200}
    assert found["json"].json()["text"] == found["text"].text.strip() == found["srt"].text.strip() == ""
    assert found["vtt"].text.strip() == "WEBVTT"
    assert found["verbose_json"].json()["segments"] == []


def test_captions_are_parsed_by_other_libraries(client, long_recording):
    srt, webvtt = pytest.importorskip("srt"), pytest.importorskip("webvtt")
    written = {
        format: client.audio.transcriptions.create(model="demo", file=long_recording, response_format=format)
        for format in ("srt", "vtt")
    }
    cues = list(srt.parse(written["srt"]))
    assert len(cues) > 10 and all(one.end <= other.start for one, other in itertools.pairwise(cues))
    assert [cue.content for cue in cues] == [cue.text for cue in webvtt.from_string(written["vtt"])]


def test_a_stream_ends_with_the_whole_text_and_its_deltas_add_up_to_it(client, long_recording):
    events = list(client.audio.transcriptions.create(model="demo", file=long_recording, stream=True))
    *deltas, done = events
    assert len(deltas) > 1 and {each.type for each in deltas} == {"transcript.text.delta"}
    assert done.type == "transcript.text.done" and "".join(each.delta for each in deltas) == done.text
    whole = client.audio.transcriptions.create(model="demo", file=long_recording, response_format="verbose_json")
    assert whole.text == done.text and whole.segments[-1].end <= whole.duration


def test_models_are_listed_and_an_unknown_one_is_not_found(client, clips):
    assert [each.id for each in client.models.list()] == ["demo", "again"]
    assert client.models.retrieve("again").id == "again"
    with pytest.raises(openai.NotFoundError, match="Available: demo, again"):
        client.audio.transcriptions.create(model="whisper-1", file=clips[0])


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"file": ("a.wav", b"this is no audio")}, 415, "Send wav"),
        ({"file": ("a.wav", b"")}, 400, "empty"),
        ({"file": ("../../etc/passwd", b"root")}, 415, "Send wav"),
        ({"response_format": "docx"}, 422, "response_format: expected json"),
        ({"response_format": "diarized_json"}, 422, "speakers"),
        ({"temperature": "hot"}, 422, "temperature"),
        ({"temperature": "0.5"}, 422, "attention models only"),
        ({"stream": "maybe"}, 422, "stream"),
        ({"timestamp_granularities[]": "syllable"}, 422, "word or segment"),
        ({"chunking_strategy": '{"type": "manual"}'}, 422, "chunking_strategy"),
        ({"model": "nobody"}, 404, "No model 'nobody'"),
    ],
)
def test_what_is_wrong_with_a_request_is_answered_as_openai_does(server, clips, fields, status, message):
    answer = post(server, **{"file": (clips[0].name, clips[0].read_bytes()), **fields})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert message in error["message"] and set(error) == {"message", "type", "param", "code"}


def test_a_path_or_a_method_that_is_not_there_has_openais_errors_too(server):
    gone = httpx.post(f"{server}/audio/transcriptions")  # without /v1 in the client's address
    assert gone.status_code == 404 and "below /v1" in gone.json()["error"]["message"]
    wrong = httpx.get(f"{server}/v1/audio/transcriptions")
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST" and "error" in wrong.json()
    assert httpx.post(f"{server}/v1/models").json()["error"]["type"] == "invalid_request_error"


def test_forms_that_are_none_are_refused(server):
    url = server + TRANSCRIPTIONS
    assert httpx.post(url).status_code == 400
    assert httpx.post(url, json={"file": "x"}).status_code == 400
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    assert httpx.post(url, content=b"--x\r\nContent-Disposition: nonsense", headers=broken).status_code == 400
    assert httpx.get(url).status_code == 405


def wav_of(samples):
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV")
    return file.getvalue()


def test_a_recording_of_more_chunks_than_may_wait_is_answered_whole(recognizer, clips):
    limits = ServerLimits(waiting_per_client=3, chunk_seconds=3.0, batch_size=4)
    samples = np.concatenate([np.pad(attune.load_audio(clip), (0, 16_000)) for clip in clips[:16]])
    expected = replace(recognizer, max_seconds=3.0).transcribe(samples)
    with running({"demo": recognizer}, ServerSettings(limits=limits)) as address:
        for stream in ("false", "true"):
            answer = post(address, file=("long.wav", wav_of(samples)), stream=stream)
            assert answer.status_code == 200 and expected in answer.text


def test_a_long_recording_of_a_client_that_has_gone_is_not_decoded_to_its_end(recognizer, clips):
    limits = ServerLimits(chunk_seconds=3.0, batch_size=2)
    samples = np.tile(np.pad(attune.load_audio(clips[0]), (0, 16_000)), 200)
    with running({"demo": recognizer}, ServerSettings(limits=limits)) as address:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                address + TRANSCRIPTIONS,
                files={"file": ("long.wav", wav_of(samples))},
                timeout=httpx.Timeout(60, read=0.2),
            )
        deadline = time.monotonic() + 60
        while 'status="499"' not in (counted := httpx.get(f"{address}/metrics").text):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    decoded = re.search(r'attune_audio_seconds_total{model="demo"} ([\d.]+)', counted)
    assert float(decoded[1]) < len(samples) / 16_000 / 2


@pytest.mark.parametrize("more", [("--name", "whisper=runs/b"), ("--name", "x=runs/b", "--name", "x=runs/c")])
def test_two_models_of_one_name_are_refused_before_any_is_loaded(more, capsys):
    assert main(["serve", "runs/a/whisper", "--port", "0", *more]) == 2
    assert "Two models are called" in capsys.readouterr().err


def test_a_translation_needs_a_model_that_can(server, clips):
    answer = post(server, "/v1/audio/translations", file=(clips[0].name, clips[0].read_bytes()))
    assert answer.status_code == 422 and "multilingual Whisper" in answer.json()["error"]["message"]


def test_many_at_once_get_the_answers_of_one_at_a_time(client, clips, recognizer):
    expected = recognizer.transcribe(clips[:24])

    def ask(path):
        return client.audio.transcriptions.create(model="demo", file=path).text

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(ask, clips[:24])) == expected


def test_sizes_and_durations_have_limits(recognizer, clips):
    limits = ServerLimits(upload_mib=1, audio_seconds=1.5)
    with running({"demo": recognizer}, ServerSettings(limits=limits)) as address:
        silence = io.BytesIO()
        soundfile.write(silence, np.zeros(16_000 * 600, np.float32), 16_000, format="FLAC")  # small, and ten minutes
        assert post(address, file=("a.flac", silence.getvalue())).status_code == 413
        assert post(address, file=(clips[0].name, clips[0].read_bytes())).status_code == 413
        assert post(address, file=("a.wav", bytes(2 << 20))).status_code == 413
        claim = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": str(2 << 30)}
        assert claimed(address, claim) == 413
        assert httpx.get(f"{address}/health").json()["status"] == "ok"


def claimed(address, headers):
    """The status of a request that claims more than it sends."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    connection.putrequest("POST", TRANSCRIPTIONS)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(b"--x\r\n")
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_chunked_body_is_counted_while_it_comes(recognizer):
    with running({"demo": recognizer}, ServerSettings(limits=ServerLimits(upload_mib=1))) as address:
        parts = (bytes(1 << 16) for _ in range(40))
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

        def body():
            yield head
            yield from parts

        assert httpx.post(address + TRANSCRIPTIONS, content=body(), headers=headers).status_code == 413


def test_a_slow_client_and_one_that_leaves_hold_up_nobody(recognizer, clips):
    with running({"demo": recognizer}, ServerSettings(limits=ServerLimits(upload_seconds=0.5))) as address:
        host, port = address.removeprefix("http://").split(":")
        head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 1000\r\n"
        head += "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
        with socket.create_connection((host, int(port))) as slow, socket.create_connection((host, int(port))) as gone:
            slow.sendall(head.encode())
            gone.sendall(head.encode())
            gone.shutdown(socket.SHUT_WR)
            assert post(address, file=(clips[0].name, clips[0].read_bytes())).status_code == 200
            slow.settimeout(20)
            assert b"408" in slow.recv(100)


def test_who_has_no_token_is_kept_out(recognizer, clips):
    with running({"demo": recognizer}, ServerSettings(token="right")) as address:
        file = (clips[0].name, clips[0].read_bytes())
        assert post(address, file=file).status_code == 401
        assert post(address, file=file, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert post(address, file=file, headers={"Authorization": "Bearer right"}).status_code == 200
        assert httpx.get(f"{address}/metrics").status_code == 401
        assert [httpx.get(address + path).status_code for path in ("/", "/page.js", "/health")] == [200] * 3


def test_pages_of_other_sites_cannot_use_a_local_server(server, clips):
    file = (clips[0].name, clips[0].read_bytes())
    assert post(server, file=file, headers={"Origin": "https://elsewhere.example"}).status_code == 403
    assert post(server, file=file, headers={"Host": "rebound.example"}).status_code == 403
    assert post(server, file=file, headers={"Origin": server}, model="demo").status_code == 200


def test_a_full_server_says_so_and_recovers(recognizer, clips):
    limits = ServerLimits(open_requests=2, upload_seconds=20)
    with running({"demo": recognizer}, ServerSettings(limits=limits)) as address:
        host, port = address.removeprefix("http://").split(":")
        head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 1000\r\n"
        head = f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n".encode()
        waiting = [socket.create_connection((host, int(port))) for _ in range(2)]
        for each in waiting:
            each.sendall(head)
        file = (clips[0].name, clips[0].read_bytes())
        until = time.monotonic() + 20
        while (answer := post(address, file=file)).status_code != 503 and time.monotonic() < until:
            time.sleep(0.05)
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        for each in waiting:
            each.close()
        while (answer := post(address, file=file)).status_code == 503 and time.monotonic() < until:
            time.sleep(0.05)
        assert answer.status_code == 200


def test_made_up_paths_fill_no_memory(server):
    for number in range(5):
        for path in (f"/v1/models/{number}", f"/health{number}", f"/v1/audio/{number}", f"/v1/realtime/{number}/x"):
            httpx.get(server + path)
    paths = set(re.findall(r'attune_requests_total{path="([^"]*)"', httpx.get(f"{server}/metrics").text))
    assert paths <= {*COUNTED, "/v1/models/…", "other"}


def test_prometheus_reads_what_was_counted(server, clips):
    from prometheus_client.parser import text_string_to_metric_families

    post(server, file=(clips[0].name, clips[0].read_bytes()), model="demo")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(httpx.get(f"{server}/metrics").text)
        for sample in family.samples
    }
    assert samples["attune_requests_total", "/v1/audio/transcriptions", "200"] >= 1
    assert samples["attune_audio_seconds_total", "demo"] > 0


def test_corrected_transcripts_become_rows_that_attune_can_read(recognizer, clips, tmp_path):
    from attune.cli import main
    from attune.corpora import open_manifest

    with running({"demo": recognizer}, ServerSettings(collect=tmp_path / "rows")) as address:
        for text in ("tiny walrus", "tiny walruses"):  # the second corrects the first
            answer = post(address, "/collect", file=("../x.opus", clips[0].read_bytes()), text=text, language="en")
            assert answer.status_code == 201
        post(address, "/collect", file=("x.opus", clips[1].read_bytes()), text="grumpy camel")
        assert post(address, "/collect", file=("x.opus", clips[1].read_bytes()), text=" ").status_code == 400
    assert main(["check", str(tmp_path / "rows" / "manifest.jsonl")]) == 0
    rows = list(open_manifest(tmp_path / "rows" / "manifest.jsonl", tmp_path / "index"))
    assert [row.text for row in rows] == ["tiny walruses", "grumpy camel"]
    assert all(Path(row.audio).is_file() for row in rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "rows"]


def test_a_server_without_a_folder_keeps_nothing(server, clips):
    answer = post(server, "/collect", file=("x.opus", clips[0].read_bytes()), text="tiny walrus")
    assert answer.status_code == 403


def test_a_stop_answers_what_was_accepted(recognizer, long_recording):
    answers = []
    with running({"demo": recognizer}) as address:
        thread = threading.Thread(target=lambda: answers.append(post(address, file=long_recording)))
        thread.start()
        until = time.monotonic() + 20
        while "attune_open_requests 2.0" not in httpx.get(f"{address}/metrics").text and time.monotonic() < until:
            time.sleep(0.01)
    thread.join(60)
    assert answers[0].status_code == 200 and json.loads(answers[0].text)["text"]
