"""A run in an object store: the same bits, complete or absent at any moment, one writer, and patient with faults."""

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

pytest.importorskip("boto3")

from attune.cli import main
from attune.errors import CheckpointError, SourceError
from attune.files import sha256
from attune.run import Run
from attune.run_mirror import mirrored
from attune.run_store import StoredRun, manifest_key, put_results
from attune.sources import (
    Cache,
    ObjectStore,
    RetryPolicy,
    list_prefix,
    locate,
    read_range,
    size_of,
    waiting_for_sources,
)
from attune.training import checkpoint

from processes import attune, free_port, start, wait
from servers.s3 import KEY, SECRET, Between, moto, proxy, rclone
from tiny import write_recipe

pytestmark = pytest.mark.recipe

STEPS = 6
SETTINGS = [
    f"train.steps={STEPS}",
    "train.save_every=1",
    "train.eval_every=3",
    "train.keep_last=2",
    "train.strict=true",
]
WRITES = ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "DeleteObject")
PARTS = 100_000  # bytes: the tiny model's optimizer has three


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("stored"))


@pytest.fixture(scope="module", params=["moto", "rclone"])
def server(request, tmp_path_factory):
    """A server, and its environment."""
    folder = tmp_path_factory.mktemp("buckets")
    (folder / "speech").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1, raising=False)
        with moto() if request.param == "moto" else rclone(folder) as url:
            yield url


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """A bucket to be reached from here and from processes that start here."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL": server}
    settings |= {"ATTUNE_CACHE": str(tmp_path / "cache")}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    import boto3

    if "Buckets" in (found := boto3.client("s3").list_buckets()) and not found["Buckets"]:
        boto3.client("s3").create_bucket(Bucket="speech")
    return f"s3://speech/{tmp_path.name}"


def words(recipe, run, *more):
    return ["train", str(recipe), f"run={run}", *SETTINGS, "train.strict=true", "data.test=[]", *more, "--workers=0"]


@pytest.fixture(scope="module")
def quiet(recipe, tmp_path_factory):
    """How the run ends in a folder."""
    run = tmp_path_factory.mktemp("quiet") / "run"
    assert wait(start(words(recipe, run))) == [0]
    return ending(run)


def ending(run):
    last = run / f"checkpoints/step-{STEPS:06d}"
    return [sha256(last / name) for name in checkpoint.FILES] + [(run / "best.json").read_text()]


def store(address):
    return ObjectStore(address, 5.0, lambda _: None)


def pulled(address, to):
    """The run as somebody else has it."""
    found = StoredRun(store(address), to)
    found.restore_all()
    return to


def require_complete(address, to):
    """What is visible is whole: checkpoints that count are sound, and the best is one of them."""
    found = StoredRun(store(address), to)
    if not found.is_run():
        return
    found.restore_all()
    steps = [each.step for each in found.checkpoints(found.store.list())]
    assert [checkpoint.damage(checkpoint.folder_of(to / "checkpoints", step)) for step in steps] == [None] * len(steps)
    best = Run(to).best()
    assert best is None or best.step in steps


class Kills:
    """Counts requests that write to the store, and kills this process before or after one of them."""

    def __init__(self, wanted, log=None):
        self.wanted, self.log, self.count, self.lock = wanted, log, 0, threading.Lock()

    def watch(self, _=0):
        from botocore.client import BaseClient

        import attune.sources._s3_objects as objects

        objects.PART_BYTES = PARTS
        real = BaseClient._make_api_call

        def watched(client, operation, arguments):
            if operation not in WRITES or arguments["Key"].endswith("attune-writer.json"):
                return real(client, operation, arguments)
            self._pass(f"before {operation}")
            answer = real(client, operation, arguments)
            self._pass(f"after {operation}")
            return answer

        BaseClient._make_api_call = watched

    def _pass(self, moment):
        with self.lock:
            self.count += 1
            if self.log:
                with self.log.open("a") as file:
                    file.write(f"{moment}\n")
            if self.count == self.wanted:
                os.kill(os.getpid(), signal.SIGKILL)


def moments(recipe, bucket, tmp_path):
    """What a run writes to the store, request by request."""
    log = tmp_path / "moments"
    assert wait(start(words(recipe, f"{bucket}-counted"), 1, Kills(0, log).watch)) == [0]
    return log.read_text().splitlines()


def chosen(found):
    """A moment of each kind of request, before or after it, spread over the run; all with ATTUNE_TEST_ALL_KILLS."""
    if "ATTUNE_TEST_ALL_KILLS" in os.environ:
        return range(1, len(found) + 1)
    kinds = [f"{'after' if turn % 2 else 'before'} {kind}" for turn, kind in enumerate(WRITES)]
    places = [[number for number, each in enumerate(found, 1) if each == kind] for kind in kinds]
    return sorted(numbers[len(numbers) * (1 + turn) // (2 + len(kinds))] for turn, numbers in enumerate(places))


def test_killed_at_any_write_it_shows_nothing_partial_and_ends_in_the_same_bits(recipe, bucket, quiet, tmp_path):
    ranks = int(os.environ.get("ATTUNE_TEST_RANKS", "1"))
    found = moments(recipe, bucket, tmp_path)
    assert {each.partition(" ")[2] for each in found} == {*WRITES}
    for number in chosen(found):
        run = f"{bucket}-{number}"
        codes = wait(
            start(words(recipe, run), ranks, lambda rank, number=number: Kills(number if rank == 0 else 0).watch())
        )
        assert -signal.SIGKILL in codes
        require_complete(run, tmp_path / f"seen-{number}")
        assert wait(start(words(recipe, run), ranks)) == [0] * ranks
        assert ending(pulled(run, tmp_path / f"pulled-{number}")) == quiet


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_a_stored_run_is_evaluated_transcribed_exported_pulled_and_pushed(recipe, bucket, quiet, tmp_path):
    assert wait(start(words(recipe, bucket))) == [0]
    store(bucket).write("scores.json", b'{"dev": ')
    done = attune("evaluate", bucket, "--on", "dev", "--json")
    assert done.returncode == 0, done.stderr
    assert "dev" in json.loads(store(bucket).read("scores.json"))
    assert store(bucket).read("predictions/dev.jsonl").count(b"\n") == 6
    audio = recipe.parent / "dev/audio/00000.wav"
    for which in ("", "@last", f"@step-{STEPS}"):
        assert attune("transcribe", f"{bucket}{which}", audio).returncode == 0
    assert attune("report", bucket).returncode == 0 and b"<html" in store(bucket).read("report.html")
    assert f"{bucket}: done, step {STEPS} of {STEPS}" in attune("watch", bucket).stdout
    assert f"steps: {STEPS} " in attune("show", bucket).stdout
    assert attune("check", bucket, "--no-audio").returncode == 0
    assert f"There is no run at {bucket}-none." in attune("verify", f"{bucket}-none").stderr
    missing = attune("transcribe", f"{bucket}@step-1", audio)
    assert missing.returncode == 2 and f"{bucket} has no checkpoint step-1. It has @step-" in missing.stderr
    assert attune("export", f"{bucket}@best", "--to", tmp_path / "model").returncode == 0
    assert attune("transcribe", f"{bucket}/model/", audio).returncode == 0  # as whoever pulls only that
    assert attune("pull", bucket, "--to", tmp_path / "run").returncode == 0
    assert ending(tmp_path / "run") == quiet and Run(tmp_path / "run").address is None
    assert "6 utterances in common" in attune("compare", bucket, tmp_path / "run", "--on", "dev").stdout
    assert attune("push", tmp_path / "run", f"{bucket}-copy", "--run").returncode == 0
    assert attune("push", f"{bucket}-copy", f"{bucket}-again", "--run").returncode == 0
    again = attune("train", f"{bucket}-again", "train.steps=8", "--reschedule", "--workers=0")
    assert again.returncode == 0, again.stderr
    assert "resuming at step 6 of 8" in again.stdout
    assert pulled(f"{bucket}-again", tmp_path / "more").joinpath("checkpoints/step-000008").is_dir()


def test_damaged_objects_are_passed_over_and_the_run_goes_on_from_the_newest_sound_checkpoint(
    recipe, bucket, quiet, tmp_path
):
    assert wait(start(words(recipe, bucket))) == [0]
    objects = store(bucket)
    newest = json.loads(objects.read(manifest_key(STEPS)))["attempt"]
    objects.write(f"checkpoints/step-{STEPS:06d}/{newest}/model.safetensors", b"damaged")
    objects.write(manifest_key(STEPS - 1), b"{")
    (tmp_path / "cache").rename(tmp_path / "another machine's")
    done = attune(*words(recipe, bucket))
    assert f"step-{STEPS:06d} is damaged and skipped: model.safetensors has a wrong checksum" in done.stdout
    assert ending(pulled(bucket, tmp_path / "seen")) == quiet


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_an_object_is_never_copied_to_elsewhere_nor_over_what_a_copy_knows_of_itself(bucket, tmp_path):
    objects, outside = store(bucket), tmp_path / "outside.txt"
    for name in ("attune-run.json", "recipe.yaml", ".store", "predictions/.hidden", "data/index.json"):
        objects.write(name, b"{}")
    copy = pulled(bucket, tmp_path / "copy")
    assert Run(copy).address == bucket
    assert {path.name for path in copy.rglob("[!.]*") if path.is_file()} == {"recipe.yaml", "log.jsonl"}
    objects.write(str(outside), b"{}")  # an absolute path, after the slash that ends the prefix
    with pytest.raises(CheckpointError, match="which is not a file of a run"):
        pulled(bucket, copy)
    assert not outside.exists()


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_what_people_put_beside_a_log_is_no_part_of_it(bucket, tmp_path):
    objects = store(bucket)
    for name in ("attune-run.json", "log/000000000000.jsonl", "log/notes.jsonl"):
        objects.write(name, b'{"event": "notes"}\n' if "notes" in name else b"{}\n")
    found = StoredRun(objects, tmp_path / "copy")
    with mirrored(found, print):
        found.run.log("step", step=1)
    assert [line.get("event") for line in Run(pulled(bucket, tmp_path / "seen")).log_lines()] == [
        None,
        "writer",
        "step",
    ]
    assert objects.read("log/notes.jsonl")


def test_machines_that_share_weights_and_no_disk_upload_their_own_shards(recipe, bucket, tmp_path):
    def elsewhere(name):
        return lambda rank: os.environ.update(ATTUNE_CACHE=str(tmp_path / f"{name}-{rank}"))

    sharded = [each for each in words(recipe, bucket, "train.shard=full") if "strict" not in each]
    assert wait(start(sharded, 2, elsewhere("machine"))) == [0, 0]
    seen = pulled(bucket, tmp_path / "seen") / f"checkpoints/step-{STEPS:06d}"
    assert checkpoint.damage(seen) is None
    assert {path.name for path in seen.glob("model-*")} == {f"model-0000{rank}-of-00002.safetensors" for rank in (1, 2)}
    token = json.loads(store(bucket).read(manifest_key(STEPS)))["attempt"]
    store(bucket).write(f"checkpoints/step-{STEPS:06d}/{token}/model-00002-of-00002.safetensors", b"damaged")
    assert wait(start(sharded, 2, elsewhere("another"))) == [0, 0]
    again = pulled(bucket, tmp_path / "again") / f"checkpoints/step-{STEPS:06d}"
    assert [sha256(again / path.name) for path in seen.glob("*.safetensors")] == [
        sha256(path) for path in seen.glob("*.safetensors")
    ]


def test_of_two_writers_one_is_refused_with_who_holds_the_run(recipe, bucket):
    (first,) = start(words(recipe, bucket, "train.steps=100000"))
    while store(bucket).read("status.json") is None:
        assert first.is_alive()
    second = attune(*words(recipe, bucket))
    assert second.returncode == 2
    assert f"{bucket} is being trained by" in second.stderr and f"process {first.pid}" in second.stderr
    os.kill(first.pid, signal.SIGTERM)
    assert wait([first]) == [75]
    assert json.loads(store(bucket).read("status.json"))["state"] == "preempted"


def test_a_writer_that_slept_while_another_took_over_writes_no_log_nor_anything_else(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr("attune.run_mirror.FLUSHED_SECONDS", 0.1)
    stored = StoredRun(store(bucket), tmp_path / "copy")
    stored.run.folder.mkdir()
    reports = []
    with pytest.raises(CheckpointError, match="was taken over by somebody"), mirrored(stored, reports.append) as mirror:
        taken = {**json.loads(stored.store.read("attune-writer.json")), "id": "another", "user": "somebody", "token": 9}
        stored.store.write("attune-writer.json", json.dumps(taken).encode())
        before = stored.store.list()
        stored.run.log("step", step=1)
        stored.run.set_status("failed")
        time.sleep(1)
        assert stored.store.list() == before
        mirror.publish()
        mirror.wait("it")
    assert stored.store.list() == before
    assert reports == []  # the error says it


def test_a_prefix_with_other_objects_is_refused(recipe, bucket, capfd):
    store(bucket).write("notes.txt", b"mine")
    assert main(words(recipe, bucket)) == 2
    assert "has other objects (notes.txt …) and is not a run" in capfd.readouterr().err
    assert store(bucket).read("notes.txt") == b"mine"


def test_a_run_inside_another_is_refused_and_one_whose_name_begins_alike_is_not(bucket, tmp_path):
    with mirrored(StoredRun(store(bucket), tmp_path / "outer"), lambda _: None):
        pass
    inner = StoredRun(store(f"{bucket}/lr/1e-4"), tmp_path / "inner")
    with pytest.raises(CheckpointError, match=f"is inside the run {bucket}"), mirrored(inner, lambda _: None):
        pass
    with mirrored(StoredRun(store(f"{bucket}2"), tmp_path / "beside"), lambda _: None):
        pass


@pytest.fixture
def relay(server, bucket, monkeypatch):
    """What is between this process and the store."""
    between = Between()
    with proxy(server, between) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield between


@contextmanager
def changed(relay, **faults):
    """The relay with faults, for two seconds and more."""
    for name, value in faults.items():
        setattr(relay, name, value)
    yield
    time.sleep(2.0)
    for name in faults:
        setattr(relay, name, getattr(Between(), name))


@pytest.mark.parametrize("server", ["rclone"], indirect=True)
def test_training_waits_for_a_store_that_is_away_refuses_or_is_slow_says_so_once_and_loses_nothing(
    recipe, bucket, relay, quiet, server, tmp_path, monkeypatch
):
    errors = tmp_path / "errors"

    def with_errors(_):
        sys.stderr = errors.open("w", buffering=1)

    (running,) = start(words(recipe, bucket), 1, with_errors)
    while not any("/step-" in each for each in relay.asked):
        assert running.is_alive()
        time.sleep(0.01)
    with changed(relay, is_away=True):
        assert running.is_alive()
    with changed(relay, refusal=503, code="SlowDown"):
        assert running.is_alive()
    relay.delay = 0.05
    assert wait([running]) == [0]
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    assert ending(pulled(bucket, tmp_path / "seen")) == quiet
    said = errors.read_text()
    assert said.count("Waiting up to 540 s") == said.count("back after") in (1, 2)  # once for each fault, or both


@pytest.mark.parametrize("server", ["rclone"], indirect=True)
def test_who_reads_a_run_is_told_that_the_store_is_away_and_when_it_is_back(bucket, relay, server, capfd):
    relay.refusal, relay.code = 503, "SlowDown"

    def come_back():
        while not relay.key:  # nobody has asked yet
            time.sleep(0.05)
        time.sleep(2.0)
        relay.refusal = None

    threading.Thread(target=come_back, daemon=True).start()
    assert main(["watch", bucket]) == 2
    said = capfd.readouterr().err.splitlines()
    assert "Waiting up to 60 s." in said[0] and "back after" in said[1]
    assert said[2:] == [f"There is no run at {bucket}. Give a run, or a folder of this machine."]


@pytest.mark.parametrize("server", ["rclone"], indirect=True)
def test_who_only_reads_is_advised_of_no_flag_that_the_command_lacks(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(SourceError, match=r"for 0 s\. Check the network, .* run the same command again\.$"):
        ObjectStore(bucket, 0.1, lambda _: None).read("recipe.yaml")


def test_a_store_that_stays_away_ends_the_run_after_the_timeout_with_what_it_has_intact(
    recipe, bucket, relay, server, tmp_path, monkeypatch
):
    (running,) = start(words(recipe, bucket, "train.steps=100000", "--timeout=3"))
    while not any("/step-" in each for each in relay.asked):
        time.sleep(0.01)
    time.sleep(1.0)
    relay.is_away = True
    assert wait([running]) == [2]
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    require_complete(bucket, tmp_path / "seen")


@pytest.mark.parametrize("server", ["rclone"], indirect=True)
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_stop_ends_the_wait_for_a_store_that_is_away_in_seconds(
    recipe, bucket, relay, is_begun, tmp_path, monkeypatch
):
    monkeypatch.setattr("attune.sources._s3_objects.STOP_SECONDS", 1.0)
    errors = tmp_path / "errors"

    def with_errors(_):
        sys.stderr = errors.open("w", buffering=1)

    relay.is_away = not is_begun
    (running,) = start(words(recipe, bucket, "train.steps=100000"), 1, with_errors)
    while is_begun and not any("/step-" in each for each in relay.asked):
        time.sleep(0.01)
    relay.is_away = True
    while not errors.exists() or "Waiting up to 540 s" not in errors.read_text():
        assert running.is_alive()
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGTERM)
    assert wait([running], 15) == [75]
    assert errors.read_text().count(f"Stopped while {bucket} did not answer") == 1
    assert "Traceback" not in errors.read_text()


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_credentials_that_expire_are_read_again(bucket, relay, tmp_path, monkeypatch):
    profile = tmp_path / "credentials"
    profile.write_text("[default]\naws_access_key_id = OLD\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    objects = store(bucket)
    objects.write("a.txt", b"1")
    assert read_range(f"{bucket}/a.txt", 0, 1) == b"1"
    relay.expired = "OLD"
    renewal = threading.Timer(1.0, lambda: profile.write_text(profile.read_text().replace("OLD", "NEW")))
    renewal.start()
    objects.write("a.txt", b"2")
    assert read_range(f"{bucket}/a.txt", 0, 1) == b"2"


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_sizes_listings_and_downloads_go_on_when_expired_credentials_are_renewed(bucket, relay, tmp_path, monkeypatch):
    profile = tmp_path / "credentials"
    profile.write_text("[default]\naws_access_key_id = KEY0\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store(bucket).write("a.txt", b"12")

    def renew(number):
        """The key before is good no more; its successor is there a moment later."""
        relay.expired = f"KEY{number}"
        text = profile.read_text().replace(relay.expired, f"KEY{number + 1}")
        threading.Timer(0.3, lambda: profile.write_text(text)).start()

    assert size_of(f"{bucket}/a.txt") == 2
    renew(0)
    assert size_of(f"{bucket}/a.txt") == 2
    renew(1)
    assert list_prefix(f"{bucket}/") == [f"{bucket}/a.txt"]
    relay.delay, before = 0.2, len(relay.asked)

    def renew_once_it_is_listed():
        while not any(each.startswith("HEAD") for each in relay.asked[before:]):
            time.sleep(0.01)
        renew(2)

    threading.Thread(target=renew_once_it_is_listed, daemon=True).start()
    found = locate(f"{bucket}/a.txt", Cache(tmp_path / "downloads", retry=RetryPolicy(5.0, 6, 0.2)))
    assert found.read_bytes() == b"12" and relay.key == "KEY3"


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_credentials_of_a_web_identity_are_asked_for_again_when_they_expire(bucket, relay, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("a token that the cluster renews")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/attune")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    objects = store(bucket)
    objects.write("a.txt", b"1")
    assert read_range(f"{bucket}/a.txt", 0, 1) == b"1"
    relay.expired = relay.key
    objects.write("a.txt", b"2")
    assert relay.key not in (KEY, relay.expired)
    relay.expired = relay.key
    assert read_range(f"{bucket}/a.txt", 0, 1) == b"2"


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_data_is_waited_for_as_long_as_training_may_wait_and_reported_once(bucket, relay, monkeypatch):
    store(bucket).write("a.txt", b"data")
    monkeypatch.setattr("attune.sources._ranges.RANGE_READS", RetryPolicy(tries=2, first_wait=0.1, longest_wait=0.2))
    address, faults = f"{bucket}/a.txt", ({"is_away": True}, {"refusal": 503, "code": "SlowDown"})
    assert read_range(address, 0, 4) == b"data"  # with a client that is ready before the faults are over
    for fault in faults:
        with (
            pytest.warns(UserWarning, match=r"Waiting up to 30 s") as warned,
            waiting_for_sources(30.0),
            ThreadPoolExecutor(1) as pool,
        ):
            with changed(relay, **fault):
                reading = pool.submit(read_range, address, 0, 4)
            assert reading.result(10) == b"data"
        assert len(warned) == 1
    relay.is_away = True
    with pytest.raises(SourceError, match="2 attempts in a row"):
        read_range(address, 0, 4)


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_transcripts_are_shards_and_a_second_command_writes_only_those_that_are_missing(recipe, bucket, monkeypatch):
    monkeypatch.setattr("attune.cli._shards.RECORDINGS", 4)
    assert wait(start(words(recipe, bucket))) == [0]
    audio = store(f"{bucket}-audio")
    for path in (recipe.parent / "dev/audio").glob("*.wav"):
        audio.upload(path.name, path)
    command = ["transcribe", bucket, f"{bucket}-audio/", "--out", f"{bucket}-texts/", "--json"]
    first = attune(*command)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["written"] == 2
    texts = store(f"{bucket}-texts")
    rows = [json.loads(line) for name in sorted(texts.list()) for line in texts.read(name).splitlines()]
    assert [row["path"] for row in rows] == sorted(f"{bucket}-audio/{name}" for name in audio.list())
    before, lost = {name: texts.read(name) for name in texts.list()}, min(texts.list())
    texts.delete([lost])
    assert json.loads(attune(*command).stdout)["written"] == 1
    assert {name: texts.read(name) for name in texts.list()} == before


def test_a_sweep_needs_a_folder(recipe, tmp_path, capfd):
    stored = tmp_path / "recipe.yaml"
    stored.write_text(recipe.read_text().replace(f"run: {recipe.parent}/run", "run: s3://speech/x"))
    assert main(["sweep", str(stored), "seed=1,2"]) == 2
    assert "is in an object store, and a folder is needed here. Set --to" in capfd.readouterr().err
    assert main(["sweep", str(recipe), "run=s3://speech/y", "seed=1,2"]) == 2
    assert "run=s3://speech/y-sweep is in an object store" in capfd.readouterr().err


def test_a_run_that_keeps_one_checkpoint_keeps_it_until_it_is_uploaded(recipe, bucket, relay, tmp_path):
    relay.delay = 0.02
    assert wait(start(words(recipe, bucket, "train.keep_last=1"))) == [0]
    relay.delay = 0.0
    require_complete(bucket, tmp_path / "whole")


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_of_two_evaluations_that_end_at_once_each_keeps_the_scores_of_the_other(bucket, relay, tmp_path):
    runs = {split: Run(tmp_path / split) for split in ("dev", "test")}
    for split, run in runs.items():
        run.folder.mkdir()
        (run.folder / ".store").write_text(bucket)
        run.add_scores(split, {"wer": 1.0})
    relay.delay = 0.2
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: put_results(each[1], each[0]), runs.items()))
    assert sorted(json.loads(store(bucket).read("scores.json"))) == ["dev", "test"]


class Writing(ObjectStore):
    """A store in which somebody else writes just after it was listed."""

    writes = ()

    def list(self, below=""):
        found = super().list(below)
        writes, self.writes = self.writes, ()
        for write in writes:
            write()
        return found


def rename_step(address, old, new):
    """What a training that keeps one checkpoint does meanwhile: a newer one appears, and the one before goes."""
    there = store(address)
    for name in sorted(there.list(f"checkpoints/step-{old:06d}/"), reverse=True):
        there.write(name.replace(f"step-{old:06d}", f"step-{new:06d}"), there.read(name))
    there.delete(sorted(there.list(f"checkpoints/step-{old:06d}/"), reverse=True))


def test_a_reader_finds_the_newest_checkpoint_of_a_run_that_replaces_it_meanwhile(recipe, bucket, tmp_path):
    assert wait(start(words(recipe, bucket, "train.steps=3", "train.keep_last=1"))) == [0]
    store(bucket).delete(["best.json"])
    for number, read in enumerate((lambda run: run.restore("last"), StoredRun.restore_all)):
        there = Writing(bucket, 5.0, lambda _: None)
        there.writes = [lambda step=3 + number: rename_step(bucket, step, step + 1)]
        found = StoredRun(there, tmp_path / f"copy{number}")
        read(found)
        newest = checkpoint.folder_of(found.run.checkpoints, 4 + number)
        assert sorted(path.name for path in found.run.checkpoints.glob("step-*"))[-1] == newest.name
        assert checkpoint.damage(newest) is None
        assert number == 0 or all(checkpoint.damage(path) is None for path in found.run.checkpoints.glob("step-*"))
