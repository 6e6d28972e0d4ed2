"""Ranks that share out the optimizer's state, or the weights too, train the same model, from any checkpoint."""

import json
import os
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file

from attune.errors import ConfigError
from attune.files import sha256
from attune.recipe import load
from attune.training import checkpoint

from processes import attune, kill, start, wait, wait_for_step
from tiny import write_recipe
from tiny_whisper import write_whisper

pytestmark = pytest.mark.recipe

KINDS = ("none", "optimizer", "full")
SETTINGS = [
    "train.steps=6",
    "optimizer.lr=3e-3",
    "train.save_every=3",
    "train.keep_last=9",
    "train.eval_every=3",
    "data.test=[]",
]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("sharding"))


def trained(recipe, run, ranks, *more):
    words = ["train", str(recipe), f"run={run}", *SETTINGS, *more, "--workers=0", "--timeout=60"]
    assert wait(start(words, ranks), 90) == [0] * ranks
    return run


def losses(run):
    """Loss by step; where a step was taken twice, of the last time."""
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if line["event"] == "step"}


def bits(run, step=6):
    return [sha256(path) for path in sorted((run / f"checkpoints/step-{step:06d}").glob("*.safetensors"))]


def apart(one, other, step=6):
    tensors = [checkpoint.tensors(run / f"checkpoints/step-{step:06d}") for run in (one, other)]
    return max(float((tensors[0][name] - tensors[1][name]).abs().max()) for name in tensors[0])


@pytest.fixture(scope="module")
def runs(recipe, tmp_path_factory):
    """A whole run under each setting, on two ranks."""
    folder = tmp_path_factory.mktemp("runs")
    return {kind: trained(recipe, folder / kind, 2, f"train.shard={kind}") for kind in KINDS}


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit", "adafactor"])
def test_a_shared_optimizer_ends_in_the_same_bits_on_any_ranks(recipe, tmp_path, optimizer):
    settings = ["train.strict=true", f"optimizer.name={optimizer}", "task.head.width=80"]
    plain = trained(recipe, tmp_path / "plain", 1, *settings)
    for ranks in (2, 3) if optimizer == "adamw" else (2,):
        shared = trained(recipe, tmp_path / str(ranks), ranks, *settings, "train.shard=optimizer")
        assert bits(shared) == bits(plain)


def test_shared_weights_train_the_same_model(runs):
    assert bits(runs["optimizer"]) == bits(runs["none"])
    assert apart(runs["full"], runs["none"]) <= 1e-6
    folders = [runs[kind] / "checkpoints/step-000006" for kind in ("full", "none")]
    full, whole = (checkpoint.tensors(folder, "optimizer") for folder in folders)
    assert full.keys() == whole.keys()
    assert all(full[name].shape == whole[name].shape for name in full)


LINKS = [(4, "full"), (1, "full"), (2, "full"), (2, "optimizer"), (3, "full"), (2, "none")]


def test_a_run_goes_on_from_every_kind_of_checkpoint_on_any_ranks(recipe, tmp_path):
    """Two ranks, then four, then one …: each goes on from what the one before it has left."""
    settings = ["train.save_every=1", "train.eval_every=7", "train.steps=7"]
    plain = trained(recipe, tmp_path / "plain", 1, *settings)
    run = trained(recipe, tmp_path / "run", 2, *settings, "train.shard=full")
    for step, (ranks, kind) in enumerate(LINKS, 1):
        for later in range(step + 1, 8):
            shutil.rmtree(run / f"checkpoints/step-{later:06d}")
        trained(recipe, run, ranks, *settings, f"train.shard={kind}")
        has_index = (run / f"checkpoints/step-{step + 1:06d}/index.json").is_file()
        assert has_index == (kind == "full" and ranks > 1)
    assert apart(run, plain, 7) <= 1e-6
    assert abs(losses(run)[7] - losses(plain)[7]) <= 1e-6


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_shard_is_passed_over_and_the_same_ranks_end_in_the_same_bits(recipe, runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs["full"], run)
    flip(run / "checkpoints/step-000006/optimizer-00002-of-00002.safetensors")
    trained(recipe, run, 2, "train.shard=full")
    assert bits(run) == bits(runs["full"])
    assert len(list(run.glob("checkpoints/*.damaged-*"))) == 1


@pytest.mark.parametrize("point", ["tensors", "index", "manifest"])
def test_killed_while_shards_are_written_a_checkpoint_is_whole_or_absent(recipe, runs, tmp_path, point):
    """A rank is killed in the middle of its file, or the first one before the index or the name."""
    run = tmp_path / "run"

    def die(rank):
        from attune.training import saving

        if point == "tensors" and rank == 1:
            saving._stored = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0 and point != "tensors":
            name = "index_json" if point == "index" else "complete"
            setattr(saving.checkpoint, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))

    words = ["train", str(recipe), f"run={run}", *SETTINGS, "train.shard=full", "--workers=0", "--timeout=20"]
    assert -9 in wait(start(words, 2, die), 60)
    assert not checkpoint.sound(run / "checkpoints")
    assert bits(trained(recipe, run, 2, "train.shard=full")) == bits(runs["full"])
    assert not list(run.glob("checkpoints/.*"))


def test_a_run_in_shards_is_exported_and_evaluated_by_one_process(runs, tmp_path):
    exported = tmp_path / "model"
    assert attune("export", f"{runs['full']}@step-3", "--to", exported).returncode == 0
    found, saved = (
        load_file(exported / "model.safetensors"),
        checkpoint.tensors(runs["full"] / "checkpoints/step-000003"),
    )
    assert all(torch.equal(found[name], saved[name]) for name in saved)
    assert attune("evaluate", f"{runs['full']}@last", "--on", "dev").returncode == 0


@pytest.mark.parametrize("micros", [1, 3])
def test_ranks_without_a_batch_keep_the_others_company(recipe, tmp_path, micros):
    settings = [f"batches.micros_per_step={micros}"]
    plain = trained(recipe, tmp_path / "plain", 1, *settings)
    full = trained(recipe, tmp_path / "full", 4, *settings, "train.shard=full")
    assert apart(plain, full) <= 1e-6


def test_killed_and_resumed_shared_weights_in_main_memory_end_in_the_same_bits(recipe, tmp_path):
    settings = ["train.shard=full", "train.offload=true", "train.save_every=1", "train.steps=14"]
    quiet = trained(recipe, tmp_path / "quiet", 4, *settings)
    run = tmp_path / "killed"
    words = ["train", str(recipe), f"run={run}", *SETTINGS, *settings, "--workers=0"]
    for step in (4, 9):
        ranks = start(words, 4)
        wait_for_step(run, step)
        kill(ranks)
    assert bits(trained(recipe, run, 4, *settings), 14) == bits(quiet, 14)


@pytest.mark.parametrize("wrong", [["train.strict=true"], ["optimizer.name=adafactor"]])
def test_what_cannot_be_shared_is_refused_before_anything_runs(recipe, wrong):
    with pytest.raises(ConfigError, match="use `shard: optimizer`"):
        load(recipe, ["train.shard=full", *wrong])
    with pytest.raises(ConfigError, match="needs `shard: full`"):
        load(recipe, ["train.offload=true"])


WHISPER = """\
run: {folder}/run
seed: 17
data: {{train: [{train}], dev: [{dev}]}}
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: {folder}/model, window: trimmed, gradient_checkpointing: true}}
batches: {{micro_utterances: 4, micros_per_step: 2}}
optimizer: {{lr: 0.001}}
train: {{steps: 6, log_every: 1}}
"""


def scores(run):
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [line["cer"] for line in lines if line["event"] == "scores"]


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit"])
def test_gradient_checkpointing_and_8_bits_under_every_setting(tmp_path, optimizer):
    write_whisper(tmp_path / "model")
    recipe = write_recipe(tmp_path, utterances=8, text=WHISPER)
    settings = ["train.eval_every=6", f"optimizer.name={optimizer}", "optimizer.lr=3e-4"]
    limit = 2e-6 if optimizer == "adamw" else 1e-5  # a rounding that is just enough moves a code of 8 bits
    plain = trained(recipe, tmp_path / "plain", 1, *settings)
    for kind in ("gradients", "full") if optimizer == "adamw" else ("optimizer", "full"):
        how = [f"train.shard={kind}"]
        run = trained(recipe, tmp_path / kind, 2, *settings, *how)
        assert max(abs(losses(run)[step] - losses(plain)[step]) for step in range(1, 7)) <= limit
        assert apart(run, plain) <= limit
        assert scores(run) == scores(plain)  # decoded by ranks together, with what each of them has
        saved = bits(run)
        shutil.rmtree(run / "checkpoints/step-000006")
        assert bits(trained(recipe, run, 2, *settings, *how)) == saved  # from step 3, exactly
