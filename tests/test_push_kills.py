"""Killed at any moment of a push, others see the whole model or none of it, and the same command completes it."""

import os
import signal
import socket

import pytest

from attune.cli import main
from attune.errors import SourceError
from attune.files import sha256
from attune.sources import Cache, RetryPolicy, locate

from processes import start, wait
from servers.hub import Hub, serve_hub
from servers.s3 import KEY, SECRET, moto
from untrained import write_model

pytestmark = pytest.mark.recipe

QUICK = RetryPolicy(timeout=3.0, tries=2, first_wait=0.01, longest_wait=0.02)


class SendKills:
    """Counts what this process sends over the network, and kills it before or after one of these."""

    def __init__(self, wanted, log=None):
        self.wanted, self.log, self.count = wanted, log, 0

    def watch(self):
        for name in ("send", "sendall"):
            setattr(socket.socket, name, self._watched(getattr(socket.socket, name)))

    def _watched(self, real):
        def watched(*arguments):
            self._pass()
            answer = real(*arguments)
            self._pass()
            return answer

        return watched

    def _pass(self):
        self.count += 1
        if self.log:
            self.log.write_text(str(self.count))
        if self.count == self.wanted:
            os.kill(os.getpid(), signal.SIGKILL)


def pushed(model, address, kills):
    (code,) = wait(start(["push", str(model), address], 1, lambda _: kills.watch()))
    return code


def contents(folder):
    return {path.relative_to(folder).as_posix(): sha256(path) for path in folder.rglob("*") if path.is_file()}


def seen(address, folder):
    """What somebody else finds there: all of it, or nothing (None)."""
    try:
        return contents(locate(address, Cache(folder, retry=QUICK)))
    except SourceError:
        return None


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("pushed"))


def chosen(moments):
    """Some of them: the first, a few on the way, and the last, where a push becomes visible."""
    return sorted({1, *range(2, moments, max(1, moments // 3)), *range(moments - 2, moments + 1)})


def push_and_kill(model, tmp_path, address):
    """Push once to count the moments, then to one address for each moment, killed there and pushed again."""
    log = tmp_path / "moments"
    assert pushed(model, address(0), SendKills(0, log)) == 0
    whole = seen(address(0), tmp_path / "whole")
    assert contents(model).items() <= whole.items()
    moments = int(log.read_text())
    assert moments > 6
    complete = 0
    for moment in chosen(moments):
        assert pushed(model, address(moment), SendKills(moment)) == -signal.SIGKILL
        found = seen(address(moment), tmp_path / f"killed-{moment}")
        assert found is None or found == whole
        complete += found is not None
        if found is None:
            assert main(["push", str(model), address(moment)]) == 0
            assert seen(address(moment), tmp_path / f"again-{moment}") == whole
    assert 0 < complete < 4  # kills before the end, and after it


def test_a_hub_has_the_whole_commit_or_none(model, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    hub = Hub()
    with serve_hub(hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        push_and_kill(model, tmp_path, lambda moment: f"hf://team/model-{moment}")


def test_a_bucket_has_the_whole_prefix_or_none(model, tmp_path, monkeypatch):
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with moto() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        import boto3

        boto3.client("s3").create_bucket(Bucket="speech")
        push_and_kill(model, tmp_path, lambda moment: f"s3://speech/model-{moment}/")
