"""Prove on the user's own model and data what attune promises: the batch, the ranks and a kill change nothing.

Each check runs the real commands in processes of their own and compares what they leave behind.
"""

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from attune.errors import ConfigError
from attune.files import sha256
from attune.report.predictions import read_predictions
from attune.run import Run
from attune.run_report import require_run
from attune.training import checkpoint
from attune.types import Json, Prediction

STEPS, SAVE_EVERY = 6, 2
LIMIT_SECONDS = 1800
ROUNDING = 1e-5  # of a number in a prediction, such as a sample or a part of an embedding


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """One promise, what was compared, and by how much it failed to hold."""

    promise: str
    compared: str
    holds: bool
    largest_difference: float


def verify(run: Run, split: str, scratch: Path, ranks: int, options: Sequence[str]) -> Iterator[VerifyFinding]:
    """Check every promise in turn; `options` go to every command."""
    require_run(run)
    recipe = run.recipe()
    if not getattr(recipe.data, split):
        raise ConfigError(f"The recipe of {run.folder} has no data.{split}. Choose --on train, dev or test.")
    alone = _predictions(run, split, scratch / "batch-1", "--batch", "1", *options)
    for name, words in {"8": ("--batch", "8"), "dynamic": ()}.items():
        other = _predictions(run, split, scratch / f"batch-{name}", *words, *options)
        yield compared(f"batch {name} gives the results of batch 1", split, alone, other)
    if ranks > 1:
        shared = _predictions(run, split, scratch / "ranks", "--devices", str(ranks), *options)
        yield compared(f"{ranks} ranks give the results of 1 rank", split, alone, shared)
    yield _kill_and_resume(run, scratch, options)


def _predictions(run: Run, split: str, folder: Path, *words: str) -> list[Prediction]:
    """What an evaluation writes."""
    folder.mkdir()
    out = folder / "predictions.jsonl"
    # Exit 1 with a file of predictions: an utterance has none, which is for the recipe to allow.
    _attune("evaluate", run.folder, "--on", split, "--out", out, *words, may_exit_1=out.exists)
    return read_values(folder)


def read_values(folder: Path) -> list[Prediction]:
    """The predictions in a folder; those that are files say where each is."""
    found = read_predictions(folder / "predictions.jsonl")
    return [replace(each, file=str(folder / each.file)) if each.file else each for each in found]


def compared(promise: str, split: str, these: Sequence[Prediction], those: Sequence[Prediction]) -> VerifyFinding:
    """Texts and labels must be the same to the letter; numbers may differ in their last digits."""
    pairs = list(zip(these, those, strict=True))
    differing = sum(differ(one, other) for one, other in pairs)
    largest = max((abs((one.score or 0.0) - (other.score or 0.0)) for one, other in pairs), default=0.0)
    compared = f"{len(these)} predictions of {split}, {differing} differ; scores"
    return VerifyFinding(promise, compared, differing == 0 and largest <= 2e-3, largest)


def differ(one: Prediction, other: Prediction) -> bool:
    """Whether two predictions are other than the same but for the last digits of their numbers."""
    if one.id != other.id or distance(one.value, other.value) > ROUNDING:
        return True
    if one.file is None or other.file is None:
        return one.file != other.file
    these, those = _read_numbers(Path(one.file)), _read_numbers(Path(other.file))
    if these.shape != those.shape:
        return True
    largest = float(np.abs(these).max(initial=0.0, where=np.isfinite(these)))
    allowed = max(ROUNDING, float(np.finfo(these.dtype).eps) * largest)  # frames are written as 16-bit floats
    return not np.allclose(these.astype(np.float64), those, rtol=0.0, atol=allowed, equal_nan=True)


def _read_numbers(path: Path) -> NDArray[np.floating[Any]]:
    """The samples of audio, or frames as they were written."""
    if path.suffix == ".npy":
        frames: NDArray[np.floating[Any]] = np.load(path, allow_pickle=False)
        return frames
    samples: NDArray[np.floating[Any]] = soundfile.read(path, dtype="float32")[0]
    return samples


def distance(one: Json, other: Json) -> float:
    """The largest difference between numbers at the same place; infinite where anything else differs."""
    if isinstance(one, float | int) and isinstance(other, float | int):
        return abs(one - other)
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        return max((distance(one[key], other[key]) for key in one), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max(map(distance, one, other), default=0.0)
    return 0.0 if one == other else math.inf


def _kill_and_resume(run: Run, scratch: Path, options: Sequence[str]) -> VerifyFinding:
    """Train a few steps in peace; train them again, killed after the first checkpoint and resumed; compare."""
    quiet, killed = Run(scratch / "quiet"), Run(scratch / "killed")
    _attune(*_training(run, quiet), *options)
    with subprocess.Popen(_command(*_training(run, killed), *options), stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + LIMIT_SECONDS
        while checkpoint.newest(killed.checkpoints)[0] is None and process.poll() is None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    _attune(*_training(run, killed), *options)
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
        "train.epochs": "null",
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
    return [sys.executable, "-P", "-m", "attune", *map(str, words)]
