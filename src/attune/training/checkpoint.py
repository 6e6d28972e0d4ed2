"""Checkpoints: a directory under its final name is complete, and a manifest of SHA-256 sums proves it.

`step-000400/` holds model.safetensors, optimizer.safetensors, progress.json and manifest.json. It is written under
another name, fsynced and renamed; removed the same way. A damaged one is reported and passed over.
"""

import json
import re
import shutil
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from attune.batches.load import Position
from attune.errors import CheckpointError
from attune.files import sha256, sync, write_text
from attune.tensor_files import write_safetensors
from attune.training.precision import LossScale
from attune.training.progress import TrainingProgress

MANIFEST = "manifest.json"
FILES = ("progress.json", "model.safetensors", "optimizer.safetensors")
STOPGAP = "stopgap"
STEP = re.compile(r"step-(\d{6,})")
FORMER_NAMES = {"heard": "epoch_seconds"}  # of fields of a position, before 0.1.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a run needs to go on as if it had never stopped."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    progress: TrainingProgress
    scores: Mapping[str, float] = field(default_factory=dict)  # of the dev sets at this step, when they were scored
    history: tuple[float, ...] = ()  # of the score that decides which is best
    is_stopgap: bool = False  # saved only because the run was asked to stop: a run that was not has none


@dataclass(frozen=True, slots=True)
class Damage:
    """A checkpoint that cannot be trusted, and why."""

    folder: Path
    reason: str


def folder_of(checkpoints: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return checkpoints / f"step-{step:06d}"


def is_step(folder: Path) -> bool:
    """Whether a folder has a checkpoint's name."""
    return STEP.fullmatch(folder.name) is not None


def save(checkpoints: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; it appears under its name whole or not at all. One that is there and sound is kept."""
    final = folder_of(checkpoints, checkpoint.progress.position.step)
    if final.exists():
        if damage(final) is None:
            return final
        set_aside(final)
    partial = _unique(checkpoints, f".{final.name}.part")
    try:
        checkpoints.mkdir(exist_ok=True)  # but not its parent: a run that was moved away is not begun again beside it
        partial.mkdir()
        _write(partial, checkpoint)
        partial.rename(final)
        sync(checkpoints)
    except OSError as error:
        raise CheckpointError(
            f"Cannot write the checkpoint of step {checkpoint.progress.position.step}: {error.strerror}. Earlier "
            f"checkpoints in {checkpoints} are intact. Free some space and run the same command again."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint back; raises CheckpointError when any byte of it is not what was written."""
    reason = damage(folder)
    if reason:
        raise CheckpointError(f"{folder} is damaged: {reason}.")
    return read(folder)


def read(folder: Path) -> Checkpoint:
    """A checkpoint that was found to be sound, as `newest` has it."""
    state = json.loads((folder / "progress.json").read_text())
    progress = TrainingProgress(
        _position(state["position"]), LossScale(**state["scale"]), state["skipped"], state["skipped_in_a_row"]
    )
    model, optimizer = load_file(folder / "model.safetensors"), load_file(folder / "optimizer.safetensors")
    return Checkpoint(model, optimizer, progress, state["scores"], tuple(state["history"]))


def _position(saved: Mapping[str, float]) -> Position:
    known = {FORMER_NAMES.get(name, name): value for name, value in saved.items()}
    return Position(**known)  # type: ignore[arg-type]


def scores(folder: Path) -> tuple[int, Mapping[str, float]]:
    """The step of a sound checkpoint, and the dev sets' scores at it; its tensors are not read."""
    state = json.loads((folder / "progress.json").read_text())
    return state["position"]["step"], state["scores"]


def newest(checkpoints: Path) -> tuple[Path | None, list[Damage]]:
    """The newest sound checkpoint, and the damaged ones that are newer."""
    damaged: list[Damage] = []
    for folder in reversed(_folders(checkpoints)):
        reason = damage(folder)
        if reason is None:
            return folder, damaged
        damaged.append(Damage(folder, reason))
    return None, damaged


def sound(checkpoints: Path) -> list[Path]:
    """The checkpoints that can be trusted, by rising step."""
    return [folder for folder in _folders(checkpoints) if damage(folder) is None]


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        listed = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return f"{MANIFEST} is missing or unreadable"
    if not isinstance(listed, dict) or not listed.keys() >= {*FILES}:
        return f"{MANIFEST} does not list every file"
    for name in FILES:
        if not (folder / name).is_file():
            return f"{name} is missing"
        if sha256(folder / name) != listed[name]:
            return f"{name} has a wrong SHA-256"
    return None


def set_aside(damaged: Path) -> None:
    """Rename a damaged checkpoint, so that it does not count as one: `step-000400.damaged-1f2e3d4c`."""
    damaged.rename(_unique(damaged.parent, f"{damaged.name}.damaged"))


def prune(checkpoints: Path, keep_last: int, keep_steps: set[int]) -> None:
    """Remove all but the newest `keep_last` checkpoints and those of `keep_steps`, and what killed saves left.

    A stopgap is removed as soon as there is a newer one, and never counts: a run that was stopped keeps what others do.
    """
    for leftover in checkpoints.glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)
    folders = _folders(checkpoints)
    kept = {folder_of(checkpoints, step) for step in keep_steps}
    stopgaps = [folder for folder in folders[:-1] if _is_stopgap(folder)]
    regular = [folder for folder in folders if folder not in stopgaps]
    for folder in [*stopgaps, *regular[:-keep_last]]:
        if folder not in kept:
            doomed = _unique(checkpoints, f".{folder.name}.old")
            folder.rename(doomed)
            shutil.rmtree(doomed)


def _is_stopgap(folder: Path) -> bool:
    try:
        return STOPGAP in json.loads((folder / "progress.json").read_text())
    except (OSError, ValueError):
        return False  # damaged; who goes on from it says so


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    state = {**asdict(checkpoint.progress), "scores": dict(checkpoint.scores), "history": checkpoint.history}
    if checkpoint.is_stopgap:
        state[STOPGAP] = True
    write_text(folder / "progress.json", json.dumps(state, indent=1))
    sums = {"progress.json": sha256(folder / "progress.json")}
    with ThreadPoolExecutor(2) as pool:  # training waits for this: write and hash both files at once
        model = pool.submit(_save_tensors, checkpoint.model, folder / "model.safetensors")
        optimizer = pool.submit(_save_tensors, checkpoint.optimizer, folder / "optimizer.safetensors")
        sums |= {"model.safetensors": model.result(), "optimizer.safetensors": optimizer.result()}
    write_text(folder / MANIFEST, json.dumps(sums, indent=1))
    sync(folder)


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> str:
    """Write the tensors; the SHA-256 of the file."""
    try:
        write_safetensors(tensors, path)
    except SafetensorError as error:  # safetensors hides the operating system's error in its own
        raise OSError(None, str(error)) from error
    sync(path)
    return sha256(path)


def _folders(checkpoints: Path) -> list[Path]:
    """Checkpoints by rising step; not those set aside as damaged, nor anybody's `step-000400-copy`."""
    steps = {int(name[1]): name[0] for name in map(STEP.fullmatch, _names(checkpoints)) if name}
    return [checkpoints / steps[step] for step in sorted(steps)]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _unique(folder: Path, name: str) -> Path:
    return folder / f"{name}-{uuid.uuid4().hex[:8]}"
