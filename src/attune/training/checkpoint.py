"""Checkpoints: a directory under its final name is complete, and a manifest of checksums proves it.

`step-000400/` holds model.safetensors, optimizer.safetensors, progress.json and manifest.json. It is written under
another name, fsynced and renamed; removed the same way. A damaged one is reported and passed over.

Ranks that share the weights write a file each in place of the two, `model-00001-of-00002.safetensors`, and index.json
says which rows of which tensor are where. Who reads a checkpoint need not know: tensors are read one by one.
"""

import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from attune.batches.micro_batch import Position
from attune.errors import CheckpointError
from attune.files import checksum, has_checksum, sync, write_text
from attune.stored_tensors import (
    DTYPES,
    StoredPart,
    StoredTensor,
    StoredTensors,
    TensorToWrite,
    open_tensors,
    write_tensors,
)
from attune.training.precision import LossScale
from attune.training.progress import TrainingProgress

MANIFEST = "manifest.json"
MODEL, OPTIMIZER = "model", "optimizer"
PROGRESS, INDEX = "progress.json", "index.json"
FILES = (PROGRESS, f"{MODEL}.safetensors", f"{OPTIMIZER}.safetensors")  # of a whole one
STOPGAP = "stopgap"
STEP = re.compile(r"step-(\d{6,})")
FORMER_NAMES = {"heard": "epoch_seconds"}  # of fields of a position, before 0.1.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a run needs to go on as if it had never stopped."""

    model: Mapping[str, Tensor]  # empty where ranks write their own slices of the tensors
    optimizer: Mapping[str, Tensor]
    progress: TrainingProgress
    scores: Mapping[str, float] = field(default_factory=dict)  # of the dev sets at this step, when they were scored
    history: tuple[float, ...] = ()  # of the score that decides which is best
    is_stopgap: bool = False  # saved only because the run was asked to stop: a run that was not has none

    def with_tensors(self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> "Checkpoint":
        """The same with these tensors."""
        return replace(self, model=model, optimizer=optimizer)


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
    step = checkpoint.progress.position.step
    final = folder_of(checkpoints, step)
    if _is_there(final):
        return final
    partial = partial_folder(checkpoints, step, uuid.uuid4().hex[:8])
    try:
        begin_folder(partial)
        sums = _write_tensors(partial, checkpoint)
        return complete(partial, checkpoint, sums)
    except OSError as error:
        raise cannot_write(checkpoints, step, str(error.strerror)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def partial_folder(checkpoints: Path, step: int, token: str) -> Path:
    """Where a checkpoint is written before it has its name."""
    return checkpoints / f".step-{step:06d}.part-{token}"


def begin_folder(partial: Path) -> None:
    """Make the folder; several ranks may."""
    partial.parent.mkdir(exist_ok=True)  # but not its parent: a run that was moved away is not begun again beside it
    partial.mkdir(exist_ok=True)


def cannot_write(checkpoints: Path, step: int, reason: str) -> CheckpointError:
    """What to raise when a disk is full or gone."""
    return CheckpointError(
        f"Cannot write the checkpoint of step {step}: {reason}. Earlier checkpoints in {checkpoints} are intact. "
        "Free some space and run the same command again."
    )


def complete(partial: Path, checkpoint: Checkpoint, sums: Mapping[str, str]) -> Path:
    """Write the rest beside files of tensors with these sums, the manifest last, and give the folder its name."""
    final = folder_of(partial.parent, checkpoint.progress.position.step)
    if _is_there(final):
        return final
    write_text(partial / PROGRESS, _progress_json(checkpoint))
    write_text(partial / MANIFEST, json.dumps({PROGRESS: checksum(partial / PROGRESS), **sums}, indent=1))
    sync(partial)
    partial.rename(final)
    sync(partial.parent)
    return final


def _is_there(final: Path) -> bool:
    """Whether a checkpoint is there and sound; a damaged one gives way."""
    if not final.exists():
        return False
    if damage(final) is None:
        return True
    set_aside(final)
    return False


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint back; raises CheckpointError when any byte of it is not what was written."""
    reason = damage(folder)
    if reason:
        raise CheckpointError(f"{folder} is damaged: {reason}.")
    return read(folder)


def read(folder: Path) -> Checkpoint:
    """A checkpoint that was found to be sound, as `newest` has it."""
    with _of_this_version(folder / PROGRESS):
        state = json.loads((folder / PROGRESS).read_text())
        progress = TrainingProgress(
            _position(state["position"]), LossScale(**state["scale"]), state["skipped"], state["skipped_in_a_row"]
        )
        scores, history = dict(state["scores"]), tuple(state["history"])
    return Checkpoint(tensors(folder, MODEL), tensors(folder, OPTIMIZER), progress, scores, history)


@contextmanager
def _of_this_version(path: Path) -> Iterator[None]:
    """Say so where a file has all of its bytes, and they are not what this version of attune writes."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not as this version of attune writes it ({error!r:.200}). Use the version that the run's "
            "environment.json names."
        ) from error


def tensors(folder: Path, kind: str = MODEL) -> StoredTensors:
    """The weights of a sound checkpoint, or the optimizer's state, to be read one by one."""
    if not (folder / INDEX).is_file():
        return open_tensors(folder / f"{kind}.safetensors")
    with _of_this_version(folder / INDEX):
        listed = json.loads((folder / INDEX).read_text())[kind]
        return StoredTensors(folder, {name: _stored(each) for name, each in listed.items()})


def weights_file(folder: Path) -> Path:
    """The file that a checkpoint's weights begin with: an index where they are in shards."""
    index = folder / INDEX
    return index if index.is_file() else folder / f"{MODEL}.safetensors"


def index_json(listed: Mapping[str, Mapping[str, StoredTensor]], token: str) -> str:
    """The content of an index: for each kind and tensor, its shape, its type and its rows' files.

    `token` is under what ranks far from the first have put their files into an object store.
    """
    plain = {kind: {name: asdict(each) for name, each in found.items()} for kind, found in listed.items()}
    return json.dumps({"format": 1, "token": token, **plain})


def token_of(folder: Path) -> str | None:
    """Under what far ranks have put their files of a checkpoint, if it is in shards."""
    path = folder / INDEX
    return str(json.loads(path.read_text())["token"]) if path.is_file() else None


def sums_of(folder: Path) -> dict[str, str]:
    """The files of a checkpoint with their sums, as its manifest has them; empty where that is damaged."""
    try:
        return dict(json.loads((folder / MANIFEST).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _stored(saved: Mapping[str, Any]) -> StoredTensor:
    parts = tuple(StoredPart(**part) for part in saved["parts"])
    if saved["dtype"] not in DTYPES or any(Path(part.file).name != part.file for part in parts):
        raise ValueError(f"{saved['dtype']} in {[part.file for part in parts]}")
    return StoredTensor(saved["dtype"], tuple(saved["shape"]), parts)


def _position(saved: Mapping[str, float]) -> Position:
    known = {FORMER_NAMES.get(name, name): value for name, value in saved.items()}
    return Position(**known)  # type: ignore[arg-type]


def scores(folder: Path) -> tuple[int, Mapping[str, float]]:
    """The step of a sound checkpoint, and the dev sets' scores at it; its tensors are not read."""
    state = json.loads((folder / PROGRESS).read_text())
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
    if not isinstance(listed, dict) or not is_complete(listed):
        return f"{MANIFEST} does not list every file"
    for name in listed:
        if not (folder / name).is_file():
            return f"{name} is missing"
        try:
            is_intact = has_checksum(folder / name, listed[name])
        except OSError as error:  # a bad sector; or another process has removed the checkpoint meanwhile
            return f"{name} cannot be read: {error.strerror}"
        if not is_intact:
            return f"{name} has a wrong checksum"
    return None


def is_complete(names: Iterable[str]) -> bool:
    """Whether these files, each in the checkpoint's own folder, can be all of a checkpoint."""
    has_tensors = {*names} >= {PROGRESS, INDEX} or {*names} == {*FILES}
    return has_tensors and all(Path(name).name == name for name in names)


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
        return STOPGAP in json.loads((folder / PROGRESS).read_text())
    except (OSError, ValueError):
        return False  # damaged; who goes on from it says so


def _progress_json(checkpoint: Checkpoint) -> str:
    state = {**asdict(checkpoint.progress), "scores": dict(checkpoint.scores), "history": checkpoint.history}
    if checkpoint.is_stopgap:
        state[STOPGAP] = True
    return json.dumps(state, indent=1)


def _write_tensors(folder: Path, checkpoint: Checkpoint) -> dict[str, str]:
    """The checksum of each file; training waits for this: both are written and hashed at once."""
    kinds = {MODEL: checkpoint.model, OPTIMIZER: checkpoint.optimizer}
    with ThreadPoolExecutor(2) as pool:
        files = {f"{kind}.safetensors": each for kind, each in kinds.items()}
        begun = {name: pool.submit(write_tensors, folder / name, _ready(each)) for name, each in files.items()}
        return {name: each.result() for name, each in begun.items()}


def _ready(tensors: Mapping[str, Tensor]) -> dict[str, TensorToWrite]:
    return {name: TensorToWrite.of(tensor) for name, tensor in tensors.items()}


def _folders(checkpoints: Path) -> list[Path]:
    """Checkpoints by rising step; not those set aside as damaged, nor anybody's `step-000400-copy`."""
    steps = {int(name[1]): name[0] for name in map(STEP.fullmatch, _names(checkpoints)) if name}
    return [checkpoints / steps[step] for step in sorted(steps)]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _unique(folder: Path, name: str) -> Path:
    return folder / f"{name}-{uuid.uuid4().hex[:8]}"
