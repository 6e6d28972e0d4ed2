"""One writer: others are refused while it lives, take over when it is gone, and it notices that they have."""

import json
import os
import subprocess
import time
from contextlib import ExitStack

import pytest

pytest.importorskip("boto3")

from attune import lease
from attune.errors import CheckpointError, TrainingError
from attune.processes import RUN_ID_VARIABLE
from attune.sources import ObjectStore

from servers.s3 import KEY, SECRET, moto, rclone

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module", params=["moto", "rclone"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("buckets")
    (folder / "speech").mkdir()
    with moto() if request.param == "moto" else rclone(folder) as url:
        yield request.param, url


@pytest.fixture
def store(server, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    for name, value in {**settings, "AWS_ENDPOINT_URL": server[1]}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(RUN_ID_VARIABLE, raising=False)
    for name, seconds in {"RENEWED_SECONDS": 0.2, "SILENT_SECONDS": 1.0, "SETTLED_SECONDS": 0.1}.items():
        monkeypatch.setattr(lease, name, seconds)
    if server[0] == "moto":
        import boto3

        boto3.client("s3").create_bucket(Bucket="speech")
    return ObjectStore(f"s3://speech/{tmp_path.name}", 5.0, lambda _: None)


def written(store, **changes):
    """The lease with other values, as another process would have written it."""
    saved = json.loads(store.read(lease.NAME))
    store.write(lease.NAME, json.dumps({**saved, "is_released": False, "renewals": 0, **changes}).encode())


def test_who_lives_keeps_others_out_and_says_which_guard_it_has(store, server):
    with lease.held(store) as mine:
        assert mine.is_conditional == (server[0] == "moto")
        with (
            pytest.raises(CheckpointError, match=rf"is being trained by .*process {os.getpid()}, since"),
            lease.held(store),
        ):
            pass
        mine.require_held()
    with lease.held(store) as after:  # released: at once
        assert after.writer.token == mine.writer.token + 1


def test_a_dead_process_of_this_machine_is_followed_at_once_and_a_silent_one_of_another_after_a_while(store):
    with lease.held(store):
        pass
    gone = subprocess.Popen(["true"])
    gone.wait()
    written(store, pid=gone.pid)
    began = time.monotonic()
    with lease.held(store):
        assert time.monotonic() - began < 1.0
    written(store, host="elsewhere")
    began = time.monotonic()
    with lease.held(store):
        assert time.monotonic() - began >= 1.0


def test_a_restarted_group_of_the_same_launch_goes_on_at_once(store, monkeypatch):
    with lease.held(store):
        pass
    written(store, host="elsewhere", launch="one")
    monkeypatch.setenv(RUN_ID_VARIABLE, "one")
    began = time.monotonic()
    with lease.held(store):
        assert time.monotonic() - began < 1.0


def test_who_was_taken_for_gone_stops_before_it_changes_anything(store):
    with lease.held(store) as mine:
        written(store, id="another", user="somebody", token=9)
        with pytest.raises(CheckpointError, match="was taken over by somebody"):
            mine.require_held()
    assert json.loads(store.read(lease.NAME))["id"] == "another"


def test_a_store_that_is_gone_in_the_end_does_not_hide_why_the_end_came(monkeypatch):
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as running, pytest.raises(TrainingError, match="what went wrong"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.enter_context(moto()))
        import boto3

        boto3.client("s3").create_bucket(Bucket="speech")
        with lease.held(ObjectStore("s3://speech/gone", 0.5, lambda _: None)):
            running.close()
            raise TrainingError("what went wrong")


def test_a_damaged_lease_is_not_guessed_at(store):
    store.write(lease.NAME, b"{")
    with pytest.raises(CheckpointError, match="attune-writer.json is damaged"), lease.held(store):
        pass
