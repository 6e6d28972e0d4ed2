"""The number of devices, the batch and a change of ranks in mid-epoch do not show in what comes out."""

import json
import os
import signal
import time

import pytest
from safetensors.torch import load_file

from attune.files import sha256

from processes import kill, start, wait, wait_for_step
from tiny import write_recipe

pytestmark = pytest.mark.recipe

QUIET = ["train.eval_every=null", "train.keep_best=null", "data.test=[]", "--workers=0"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("equivalence"))


def trained(recipe, run, ranks, *settings):
    """The weights after 30 steps."""
    words = ["train", str(recipe), f"run={run}", "train.steps=30", "train.save_every=30", "optimizer.lr=3e-3"]
    words += [*QUIET, *settings]
    assert wait(start(words, ranks)) == [0] * ranks
    return run / "checkpoints/step-000030"


def test_one_two_and_four_ranks_train_the_same_model(recipe, tmp_path):
    one, *others = (load_file(trained(recipe, tmp_path / f"{n}", n) / "model.safetensors") for n in (1, 2, 4))
    for other in others:
        assert max(float((one[name] - other[name]).abs().max()) for name in one) <= 1e-6


def test_strictly_one_two_three_and_four_ranks_end_in_the_same_bits(recipe, tmp_path):
    folders = [trained(recipe, tmp_path / f"{n}", n, "train.strict=true") for n in (1, 2, 3, 4)]
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert len({sha256(folder / name) for folder in folders}) == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ranks_that_change_in_mid_epoch_end_in_the_same_bits_when_strict(recipe, tmp_path, precision):
    settings = ["train.steps=12", "train.save_every=1", "train.strict=true", f"train.precision={precision}", *QUIET]
    quiet = ["train", str(recipe), f"run={tmp_path / 'quiet'}", *settings]
    assert wait(start(quiet)) == [0]
    words = ["train", str(recipe), f"run={tmp_path / 'changing'}", *settings]
    for step, ranks in ((2, 2), (4, 4), (5, 1), (7, 3)):
        processes = start(words, ranks)
        wait_for_step(tmp_path / "changing", step)
        kill(processes)
    assert wait(start(words, 2), 60) == [0, 0]
    last = [tmp_path / name / "checkpoints/step-000012" for name in ("quiet", "changing")]
    for name in ("model.safetensors", "optimizer.safetensors", "progress.json"):
        assert sha256(last[0] / name) == sha256(last[1] / name)


def test_predictions_are_the_same_file_at_any_batch_on_any_ranks(recipe, tmp_path):
    run = tmp_path / "run"
    words = ["train", str(recipe), f"run={run}", "train.steps=40", "data.test=[]", "train.eval_every=40", "--workers=0"]
    assert wait(start(words)) == [0]
    files = set()
    for ranks in (1, 2, 4):
        for batch in (["--batch=1"], ["--batch=8"], []):
            out = tmp_path / f"{ranks}-{len(files)}.jsonl"
            evaluated = ["evaluate", str(run), "--on=train", f"--out={out}", "--workers=0", *batch]
            assert wait(start(evaluated, ranks)) == [0] * ranks
            files.add(out.read_bytes())
    assert len(files) == 1
    scores = json.loads((run / "scores.json").read_text())["train"]
    assert len(scores["ranks"]) == 4
    for name, total in scores["counts"].items():
        assert sum(rank[name] for rank in scores["ranks"]) == total


@pytest.mark.parametrize("ranks", [1, 3])
def test_sigterm_to_one_rank_saves_one_step_on_all_and_exits_75(recipe, tmp_path, ranks):
    run = tmp_path / "run"
    settings = ["train.steps=5000", "train.save_every=5000", "train.warmup=0", *QUIET]
    processes = start(["train", str(recipe), f"run={run}", *settings], ranks)
    log, deadline = run / "log.jsonl", time.monotonic() + 60
    while not (log.exists() and '"event": "step"' in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(processes[-1].pid, signal.SIGTERM)
    os.kill(processes[-1].pid, signal.SIGTERM)  # twice: some schedulers do
    assert wait(processes, 30) == [75] * ranks
    status = json.loads((run / "status.json").read_text())
    (saved,) = (run / "checkpoints").iterdir()
    assert status["state"] == "preempted"
    assert f"step {int(saved.name.removeprefix('step-'))} is saved" in status["message"]
