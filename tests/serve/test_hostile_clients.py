"""Damaged and hostile requests: a right status each, the server goes on, nothing is written anywhere."""

import os
import random
import tempfile

import httpx
import pytest

import attune

from serving import DEMO, demo_clips, running

CASES = int(os.environ.get("CASES", 200))
URL = "/v1/audio/transcriptions"
FIELDS = ("model", "language", "prompt", "temperature", "response_format", "stream", "keywords[]", "include[]", "file")
VALUES = ("", "\0", "x" * 70_000, "../../../etc/passwd", "1e999", "nan", "json", "{" * 5_000, "\ud7ff", "true", "0")


@pytest.fixture(scope="module")
def server():
    with running({"demo": attune.load(DEMO / "model")}) as address:
        yield address


def form(random_numbers, clip):
    """A form with fields out of order, doubled, absurd or cut, and its content type."""
    boundary = random_numbers.choice(("x", "-" * 70, "a b", ""))
    parts = []
    for name in random_numbers.choices(FIELDS, k=random_numbers.randrange(1, 12)):
        is_file = name == "file" or random_numbers.random() < 0.1
        head = f'Content-Disposition: form-data; name="{name}"' + ('; filename="../../x.wav"' if is_file else "")
        value = clip if is_file else random_numbers.choice(VALUES).encode(errors="replace")
        parts.append(b"--" + boundary.encode() + b"\r\n" + head.encode() + b"\r\n\r\n" + value + b"\r\n")
    body = bytearray(b"".join(parts) + b"--" + boundary.encode() + b"--\r\n")
    for _ in range(random_numbers.choice((0, 0, 1, 20))):
        body[random_numbers.randrange(len(body))] = random_numbers.randrange(256)
    if random_numbers.random() < 0.3:
        del body[random_numbers.randrange(len(body)) :]
    return bytes(body), f"multipart/form-data; boundary={boundary}"


# Starlette leaves the files of a broken form to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_fuzzed_forms_get_an_answer_and_leave_nothing_behind(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clip, random_numbers = demo_clips()[0][0].read_bytes(), random.Random(21)
    statuses = []
    with httpx.Client(timeout=60) as client:
        for _ in range(CASES):
            body, kind = form(random_numbers, clip)
            statuses.append(client.post(server + URL, content=body, headers={"Content-Type": kind}).status_code)
        assert client.get(f"{server}/health").status_code == 200
    assert set(statuses) <= {200, 400, 404, 413, 415, 422} and len(set(statuses)) > 2
    assert list(tmp_path.iterdir()) == []


def test_a_thousand_tiny_requests_are_answered(server):
    with httpx.Client(timeout=60) as client:
        assert {client.post(server + URL, content=b"x").status_code for _ in range(1000)} == {400}
