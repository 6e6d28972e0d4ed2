"""Features in an object store: computed in shards by anybody, resumed by shard, and read by training."""

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("boto3")

from attune.recipe import load
from attune.site import this_site
from attune.sources import ObjectStore
from attune.stages.feature_shards import fetch_features

from processes import attune, start, wait
from servers.s3 import KEY, SECRET, moto
from tiny import write_recipe
from tiny_upstreams import make_encoder

pytestmark = pytest.mark.recipe

RECIPE = """\
run: {folder}/run
seed: 3
data: {{train: [{train}], dev: [{dev}]}}
task: {{name: classify, label: register, head: {{width: 16}}}}
model: {{family: ssl, upstream: hubert, weights: {folder}/hubert, cache_precision: fp32}}
adapt: {{freeze: [upstream]}}
batches: {{micro_utterances: 4, micros_per_step: 2}}
optimizer: {{lr: 0.01}}
train: {{steps: 4, eval_every: 4, save_every: 4, log_every: 1, track: []}}
"""


@pytest.fixture
def store(monkeypatch, tmp_path):
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    settings |= {"ATTUNE_CACHE": str(tmp_path / "cache")}
    with moto() as url:
        for name, value in (settings | {"AWS_ENDPOINT_URL": url}).items():
            monkeypatch.setenv(name, value)
        import boto3

        boto3.client("s3").create_bucket(Bucket="speech")
        yield ObjectStore("s3://speech/features", 5.0, lambda _: None)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setattr("attune.stages.feature_shards.UTTERANCES", 4)
    make_encoder("hubert").save_pretrained(tmp_path / "hubert")
    return write_recipe(tmp_path, utterances=12, text=RECIPE)


def killed_at_the_second_upload(_):
    real, uploads = ObjectStore.upload, []

    def upload(self, name, path):
        uploads.append(name)
        if len(uploads) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, name, path)

    ObjectStore.upload = upload


def losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["event"] == "step"]


def test_a_killed_command_goes_on_by_shard_and_training_reads_what_it_wrote(recipe, store, tmp_path):
    words = ["features", str(recipe), "--to", store.address, "--device=cpu"]
    assert wait(start(words, 1, killed_at_the_second_upload)) == [-signal.SIGKILL]
    (first,) = store.list()
    before = store.read(first)
    done = attune(*words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"to": store.address, "shards": 5, "written": 4}  # 12 and 6 utterances
    assert len(store.list()) == 5 and store.read(first) == before
    assert json.loads(attune(*words, "--json").stdout)["written"] == 0
    for name, cache in (("plain", "null"), ("kept", store.address)):
        run = [f"run={tmp_path / name}", f"model.cache={cache}", "--workers=0", "--device=cpu"]
        trained = attune("train", recipe, *run)
        assert trained.returncode == 0, trained.stderr
    assert losses(tmp_path / "kept") == pytest.approx(losses(tmp_path / "plain"), rel=1e-5)  # of other batches
    copied = sorted(path.name for path in (tmp_path / "cache/features").rglob("*.safetensors"))
    assert copied == sorted(Path(name).name for name in store.list())  # and nothing was computed again


def test_an_object_that_would_lie_outside_the_cache_is_not_copied(recipe, store, tmp_path):
    outside = tmp_path / "outside.safetensors"
    for name in (str(outside), "a/../../outside.safetensors", "a/b.safetensors"):
        store.write(name, b"")
    with_cache = fetch_features(load(recipe, ["model.cache=s3://speech/features"]).recipe, this_site(0, "cpu"))
    copies = Path(with_cache.model.config.cache)
    assert [path.relative_to(copies).as_posix() for path in copies.rglob("*.safetensors")] == ["a/b.safetensors"]
    assert not outside.exists()


def test_what_cannot_be_kept_is_refused(recipe, store):
    refused = attune("features", recipe, "adapt.freeze=[]", "--to", store.address, "--device=cpu")
    assert refused.returncode == 2 and "Set adapt.freeze=[upstream]" in refused.stderr
    assert "is not in an object store" in attune("features", recipe, "--to", "here").stderr
