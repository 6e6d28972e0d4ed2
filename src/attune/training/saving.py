"""Saving in shards, beside training: each rank writes its own rows while the next step is computed.

Weights and optimizer state do not change until the optimizer steps. Until then they are written from where they are;
what is not written by then is copied to the host just before the step, and written from there. So a save costs memory
only where writing is slower than a step. The first rank names the checkpoint when all ranks have reported the
sums of their files.
"""

import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn
from torch.optim import Optimizer

from attune.errors import AttuneError
from attune.files import checksum, write_text
from attune.stored_tensors import DTYPE_NAMES, StoredPart, StoredTensor, TensorToWrite, write_tensors
from attune.training import checkpoint
from attune.training.checkpoint import INDEX, MODEL, OPTIMIZER, Checkpoint
from attune.training.optimizer import state_by_name
from attune.training.sharding import OwnSlice, own_slices
from attune.world import World

Deliver = Callable[[Path, int], None]  # a rank's files in a folder, of a step, to where the first rank's are


class _Moment:
    """A tensor as it is now, whatever becomes of it: written from where it is, or from a copy."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor: Tensor | None = tensor
        self._is_copy = False
        self._lock = threading.Lock()

    def use(self, write: Callable[[Tensor], None]) -> None:
        with self._lock:
            if self._tensor is not None:
                write(self._tensor)
            self._tensor = None

    def keep(self) -> None:
        """It is about to change: have a copy, unless it is written."""
        with self._lock:
            if self._tensor is not None and not self._is_copy:
                self._tensor, self._is_copy = self._tensor.to("cpu", copy=True), True


@dataclass(frozen=True, slots=True)
class _Report:
    """What a rank has written: the sums of its files, and its rows of each tensor by kind; or what went wrong."""

    sums: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, Mapping[str, StoredTensor]] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A checkpoint that is being written."""

    state: Checkpoint
    folder: Future[Path]  # on the first rank its final one
    moments: Sequence[_Moment]


class ShardedSaver:
    """Saves one checkpoint at a time; all ranks begin each together."""

    def __init__(
        self, checkpoints: Path, model: nn.Module, optimizer: Optimizer, world: World, deliver: Deliver
    ) -> None:
        self._checkpoints, self._model, self._optimizer = checkpoints, model, optimizer
        self._world, self._beside, self._deliver = world, world.apart(), deliver
        self._pool = ThreadPoolExecutor(1)
        self._pending: _Pending | None = None
        optimizer.register_step_pre_hook(lambda *_: self._keep())

    def begin(self, state: Checkpoint) -> None:
        """Start to write the model and optimizer as they are; `state` has the rest. The one before must be over."""
        step = state.progress.position.step
        token = self._world.gather(uuid.uuid4().hex[:8])[0]
        partial = checkpoint.partial_folder(self._checkpoints, step, token)
        # Statistics are no parameters, and change in a forward pass.
        weights = {
            name: tensor if isinstance(tensor, nn.Parameter) else tensor.to("cpu", copy=True)
            for name, tensor in self._model.state_dict(keep_vars=True).items()
        }
        kinds = {MODEL: weights, OPTIMIZER: state_by_name(self._optimizer, self._model)}
        slices = {kind: own_slices(tensors, self._world.rank) for kind, tensors in kinds.items()}
        held = {kind: {name: _Moment(each.tensor) for name, each in own.items()} for kind, own in slices.items()}
        future = self._pool.submit(self._save, partial, state, slices, held)
        self._pending = _Pending(state, future, [each for own in held.values() for each in own.values()])

    @property
    def is_saving(self) -> bool:
        """Whether a save was begun and not seen to its end by `finish`."""
        return self._pending is not None

    @property
    def is_written(self) -> bool:
        """Whether `finish` would return at once."""
        return self._pending is not None and self._pending.folder.done()

    def finish(self) -> tuple[Checkpoint, Path]:
        """Wait for the save that was begun; what it is of, and its folder, which is there on the first rank."""
        if self._pending is None:
            raise RuntimeError("no save was started")
        pending, self._pending = self._pending, None
        return pending.state, pending.folder.result()

    def close(self) -> None:
        """Wait for what was begun, however it ends."""
        self._pool.shutdown()

    def _keep(self) -> None:
        # From the end: the other thread writes from the beginning meanwhile.
        for moment in reversed(self._pending.moments if self._pending else ()):
            moment.keep()

    def _save(
        self,
        partial: Path,
        state: Checkpoint,
        slices: Mapping[str, Mapping[str, OwnSlice]],
        held: Mapping[str, Mapping[str, _Moment]],
    ) -> Path:
        """The whole of it on this rank, in a thread of its own."""
        try:
            report = self._write(partial, slices, held)
            self._deliver(partial, state.progress.position.step)
        except (OSError, AttuneError) as error:
            report = _Report(failure=str(getattr(error, "strerror", None) or error))
        try:
            reports = self._beside.gather_to_first(report)
            failures = [each.failure for each in reports or [report] if each.failure]
            if failures:
                raise checkpoint.cannot_write(self._checkpoints, state.progress.position.step, failures[0])
            return self._complete(partial, state, reports) if reports else partial
        finally:
            if self._world.is_first:
                shutil.rmtree(partial, ignore_errors=True)

    def _write(
        self,
        partial: Path,
        slices: Mapping[str, Mapping[str, OwnSlice]],
        held: Mapping[str, Mapping[str, _Moment]],
    ) -> _Report:
        checkpoint.begin_folder(partial)
        sums, listed = {}, {}
        for kind, own in slices.items():
            file = f"{kind}-{self._world.rank + 1:05d}-of-{self._world.size:05d}.safetensors"
            ready = {
                name: TensorToWrite(each.tensor.dtype, tuple(each.tensor.shape), held[kind][name].use)
                for name, each in own.items()
            }
            sums[file] = write_tensors(partial / file, ready)
            listed[kind] = {name: _stored(each, file) for name, each in own.items()}
        return _Report(sums, listed)

    def _complete(self, partial: Path, state: Checkpoint, reports: Sequence[_Report]) -> Path:
        """On the first rank: the index, and the name."""
        listed = {kind: _joined([report.tensors[kind] for report in reports]) for kind in (MODEL, OPTIMIZER)}
        try:
            write_text(partial / INDEX, checkpoint.index_json(listed, partial.name.rpartition("-")[2]))
            sums = {file: each for report in reports for file, each in report.sums.items()}
            return checkpoint.complete(partial, state, {INDEX: checksum(partial / INDEX), **sums})
        except OSError as error:
            step = state.progress.position.step
            raise checkpoint.cannot_write(self._checkpoints, step, str(error.strerror)) from error


def _stored(own: OwnSlice, file: str) -> StoredTensor:
    rows = own.tensor.shape[0] if own.shape else 1
    return StoredTensor(DTYPE_NAMES[own.tensor.dtype], own.shape, (StoredPart(file, own.first, rows),))


def _joined(parts: Sequence[Mapping[str, StoredTensor]]) -> dict[str, StoredTensor]:
    """Each tensor with the rows of all ranks, in their order; ranks without any are left out."""
    joined: dict[str, StoredTensor] = {}
    for part in parts:
        for name, each in part.items():
            before = joined[name].parts if name in joined else ()
            rows = before + tuple(found for found in each.parts if found.rows)
            joined[name] = StoredTensor(each.dtype, each.shape, rows)
    return joined
