"""One recipe: weights from a hub, tokenizer from the web, manifests from S3 and a folder; then without a network."""

import json
import shutil
from contextlib import ExitStack

import pytest
import torch
from safetensors.torch import load_file

from attune.cli import main
from attune.files import sha256
from attune.testing import make_corpus

from servers.hub import Hub, serve_hub
from servers.s3 import KEY, SECRET, Between, moto, proxy
from servers.web import Site, web
from tiny_whisper import DIMS, openai_name, write_whisper

pytestmark = pytest.mark.recipe

RECIPE = """\
run: {folder}/{run}
seed: 17
data:
  train: [s3://speech/train/manifest.jsonl]
  dev: [{folder}/dev/manifest.jsonl]
  test: [hf://datasets/team/digits/test/manifest.jsonl]
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: hf://team/tiny/tiny.pt, tokenizer: "{web}/tokenizer.json?X-Amz-Signature=5ecret"}}
batches: {{micro_utterances: 4}}
optimizer: {{lr: 0.003}}
train: {{steps: 2, warmup: 1, eval_every: 2, save_every: 1, log_every: 1, strict: true}}
"""


def write_pt(model, path):
    """OpenAI's format, of a folder in transformers'."""
    tensors = load_file(model / "model.safetensors")
    state = {openai_name(name): tensor for name, tensor in tensors.items()}
    torch.save({"dims": DIMS, "model_state_dict": state}, path)
    return path


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class World:
    """Four places, and how often they were asked."""

    def __init__(self, stack: ExitStack, folder, monkeypatch) -> None:
        import boto3

        model = write_whisper(folder / "model")
        self.hub, self.site, self.between = Hub(), Site(), Between()
        self.hub.put("team/tiny", {"tiny.pt": write_pt(model, folder / "tiny.pt").read_bytes()})
        self.site.files["/tokenizer.json"] = (model / "tokenizer.json").read_bytes()
        make_corpus(folder / "dev", utterances=2, seed=2)
        test = files_of(make_corpus(folder / "test", utterances=2, seed=3).parent)
        self.hub.put("team/digits", {f"test/{name}": body for name, body in test.items()}, kind="datasets")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        endpoint = stack.enter_context(moto())
        settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
        settings["AWS_ENDPOINT_URL"] = stack.enter_context(proxy(endpoint, self.between))
        settings["HF_ENDPOINT"] = stack.enter_context(serve_hub(self.hub))
        settings["ATTUNE_CACHE"] = str(folder / "cache")
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        self.s3 = boto3.client("s3", endpoint_url=endpoint)
        self.s3.create_bucket(Bucket="speech")
        for name, body in files_of(make_corpus(folder / "train", utterances=8, seed=1).parent).items():
            self.s3.put_object(Bucket="speech", Key=f"train/{name}", Body=body)
        for name in ("test", "train", "model"):
            shutil.rmtree(folder / name)  # nothing is found here by chance
        self.web = stack.enter_context(web(self.site))

    def asked(self) -> int:
        return len(self.hub.asked) + len(self.site.asked) + len(self.between.asked)


@pytest.fixture
def world(tmp_path, monkeypatch):
    with ExitStack() as stack:
        yield World(stack, tmp_path, monkeypatch)


def recipe_for(world, folder, run):
    path = folder / f"{run}.yaml"
    path.write_text(RECIPE.format(folder=folder, run=run, web=world.web))
    return str(path)


def test_four_schemes_in_one_recipe_and_again_without_a_network(world, tmp_path, capsys):
    words = ["--workers", "0"]
    assert main(["train", recipe_for(world, tmp_path, "first"), *words]) == 0, capsys.readouterr().err
    asked = world.asked()
    assert main(["train", recipe_for(world, tmp_path, "second"), *words, "--offline"]) == 0, capsys.readouterr().err
    assert world.asked() == asked
    first, second = tmp_path / "first", tmp_path / "second"
    for name in ("model/model.safetensors", "checkpoints/step-000002/optimizer.safetensors", "predictions/test.jsonl"):
        assert sha256(first / name) == sha256(second / name)
    assert (first / "sources.lock.json").read_bytes() == (second / "sources.lock.json").read_bytes()

    # What the run wrote names everything it used, and no secret.
    lock = {each["source"]: each for each in json.loads((first / "sources.lock.json").read_text())["sources"]}
    assert set(lock) == {
        "s3://speech/train/manifest.jsonl",
        "s3://speech/train/manifest.jsonl#beside",
        f"{tmp_path}/dev/manifest.jsonl",
        "hf://datasets/team/digits/test/manifest.jsonl",
        "hf://datasets/team/digits/test/manifest.jsonl#beside",
        "hf://team/tiny/tiny.pt",
        f"{world.web}/tokenizer.json",
    }
    assert lock["hf://team/tiny/tiny.pt"]["files"]["tiny.pt"]["sha256"] == sha256(tmp_path / "tiny.pt")
    assert len(lock["s3://speech/train/manifest.jsonl#beside"]["files"]) == 9
    written = [path for path in first.rglob("*") if path.is_file() and b"5ecret" in path.read_bytes()]
    assert written == []

    # Elsewhere, after the hub has moved on, the lock brings back what was used, and the run resumes with it.
    world.hub.put("team/tiny", {"tiny.pt": b"something else"})
    shutil.rmtree(tmp_path / "cache")
    locked = ["--locked", str(first / "sources.lock.json")]
    assert main(["fetch", recipe_for(world, tmp_path, "first"), *locked, "--json"]) == 0, capsys.readouterr().err
    asked = world.asked()
    shutil.rmtree(first / "checkpoints/step-000002")
    assert main(["train", recipe_for(world, tmp_path, "first"), *words]) == 0, capsys.readouterr().err
    assert world.asked() == asked
    assert sha256(first / "model/model.safetensors") == sha256(second / "model/model.safetensors")


def test_a_lock_notices_local_files_that_changed(world, tmp_path, capsys):
    assert main(["train", recipe_for(world, tmp_path, "first"), "--workers", "0"]) == 0
    with (tmp_path / "dev/manifest.jsonl").open("a") as file:
        file.write("\n")
    locked = ["--locked", str(tmp_path / "first/sources.lock.json")]
    assert main(["fetch", recipe_for(world, tmp_path, "first"), *locked]) == 2
    assert "dev/manifest.jsonl has changed since it was locked" in capsys.readouterr().err
