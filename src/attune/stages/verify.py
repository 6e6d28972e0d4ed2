"""Prove on the user's own model and data what attune promises: the batch, the ranks and a kill change nothing.

Each check runs the real commands in processes of their own and compares what they leave behind.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attune.errors import ConfigError
from attune.files import sha256
from attune.report.predictions import read_predictions
from attune.run import Run
from attune.training import checkpoint
from attune.types import Prediction

STEPS, SAVE_EVERY = 6, 2
LIMIT_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """One promise, what was compared, and by how much it failed to hold."""

    promise: str
    compared: str
    holds: bool
    largest_difference: float


def verify(run: Run, split: str, scratch: Path) -> Iterator[VerifyFinding]:
    """Check every promise in turn."""
    recipe = run.recipe()
    if not getattr(recipe.data, split):
        raise ConfigError(f"The recipe of {run.folder} has no data.{split}. Choose another: --on train|dev|test.")
    alone = _predictions(run, split, scratch / "batch-1.jsonl", "--batch", "1")
    for name, words in {"8": ("--batch", "8"), "dynamic": ()}.items():
        other = _predictions(run, split, scratch / f"batch-{name}.jsonl", *words)
        yield compared(f"batch {name} gives what batch 1 gives", split, alone, other)
    two = _predictions(run, split, scratch / "ranks-2.jsonl", "--devices", "2")
    yield compared("2 ranks give what 1 rank gives", split, alone, two)
    yield _kill_and_resume(run, scratch)


def _predictions(run: Run, split: str, out: Path, *words: str) -> list[Prediction]:
    # Exit 1 with a file of predictions: an utterance has none, which is for the recipe to allow.
    _attune("evaluate", run.folder, "--on", split, "--out", out, *words, may_exit_1=out.exists)
    return read_predictions(out)


def compared(promise: str, split: str, these: Sequence[Prediction], those: Sequence[Prediction]) -> VerifyFinding:
    """Predictions must be the same to the letter; scores may differ in their last rounded digit."""
    differing = sum((one.id, one.value) != (other.id, other.value) for one, other in zip(these, those, strict=True))
    scores = [(one.score or 0.0, other.score or 0.0) for one, other in zip(these, those, strict=True)]
    largest = max((abs(one - other) for one, other in scores), default=0.0)
    compared = f"{len(these)} predictions of {split}, {differing} differ; scores"
    return VerifyFinding(promise, compared, differing == 0 and largest <= 2e-3, largest)


def _kill_and_resume(run: Run, scratch: Path) -> VerifyFinding:
    """Train a few steps in peace; train them again, killed after the first checkpoint and resumed; compare."""
    quiet, killed = Run(scratch / "quiet"), Run(scratch / "killed")
    _attune(*_training(run, quiet))
    with subprocess.Popen(_command(*_training(run, killed)), stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + LIMIT_SECONDS
        while checkpoint.newest(killed.checkpoints)[0] is None and process.poll() is None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    _attune(*_training(run, killed))
    final = [checkpoint.folder_of(each.checkpoints, STEPS) for each in (quiet, killed)]
    files = ("model.safetensors", "optimizer.safetensors")
    same = all(sha256(final[0] / name) == sha256(final[1] / name) for name in files)
    one, other = (checkpoint.load(folder).model for folder in final)
    largest = max(float((one[name].double() - other[name].double()).abs().max()) for name in one)
    compared = f"SHA-256 of weights and optimizer after {STEPS} steps; weights"
    return VerifyFinding("kill -9 and resume ends in the same bits", compared, same, largest)


def _training(run: Run, scratch: Run) -> list[str]:
    """The run's own recipe for a few steps in another folder."""
    changes = {
        "run": str(scratch.folder),
        "train.steps": STEPS,
        "train.warmup": 1,
        "train.save_every": SAVE_EVERY,
        "train.eval_every": "null",
        "train.keep_best": "null",
        "train.patience": "null",
        "train.eval_utterances": "null",
        "data.test": "[]",
    }
    return ["train", str(run.folder / "recipe.yaml"), *(f"{key}={value}" for key, value in changes.items())]


def _attune(*words: object, may_exit_1: Callable[[], bool] = lambda: False) -> None:
    done = subprocess.run(_command(*words), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode and not (done.returncode == 1 and may_exit_1()):
        raise ConfigError(f"`attune {' '.join(map(str, words))}` failed:\n{done.stderr.strip() or done.stdout.strip()}")


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "attune", *map(str, words)]
