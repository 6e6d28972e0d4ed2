"""One micro-batch forward and backward: eagerly, or as a CUDA graph where a model allows it.

Small models wait for Python more than for the device. A graph replays the thousand launches of a micro-batch as one;
there is one graph for each of a few shapes, and batches are padded up to them with rows that count nothing.
"""

# B batch, T samples, U target tokens
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.training.precision import narrowed
from attune.types import SAMPLE_RATE, Batch, Loss

ROWS, SAMPLES, TOKENS = 16, 3 * SAMPLE_RATE, 32  # shapes are multiples of these: few, as each is recorded
WARM_UPS = 2  # libraries choose their kernels in the first runs, which must not be recorded


class Backward(Protocol):
    """Adds the gradient of a batch's loss, times `scale`, to the parameters' gradients."""

    def __call__(self, batch: Batch, scale: float) -> Loss:
        """The loss, detached."""


@dataclass(frozen=True, slots=True)
class Eager:
    """Runs the model as it is written."""

    model: Any
    precision: str
    device: torch.device

    def __call__(self, batch: Batch, scale: float) -> Loss:
        """The loss, detached."""
        with narrowed(self.precision, self.device):
            loss: Loss = self.model.loss(batch.to(self.device))
        (loss.total * scale).backward()  # type: ignore[no-untyped-call]
        return Loss(loss.total.detach(), loss.count.detach())


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    batch: Batch  # the memory that the graph reads
    scale: Tensor
    loss: Loss  # the memory that it writes


class Graphed:
    """Records a graph for each shape that comes, and replays it from then on."""

    def __init__(self, eager: Eager, gradients: Tensor) -> None:
        self.eager = eager
        self.gradients = gradients
        self._recorded: dict[tuple[int, int, int], _Recorded] = {}
        # One memory for all graphs: only one of them runs at a time, and what it leaves is copied at once.
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch, scale: float) -> Loss:
        """The loss, detached."""
        if batch.masks:
            return self.eager(batch, scale)  # masks are drawn by the host
        batch = padded_to_shape(batch)
        shape = (*batch.audio.shape, batch.targets.shape[1])
        if shape not in self._recorded:
            self._recorded[shape] = self._record(batch)
        recorded = self._recorded[shape]
        for name in ("audio", "lengths", "targets", "target_lengths"):
            getattr(recorded.batch, name).copy_(getattr(batch, name), non_blocking=True)
        recorded.scale.fill_(scale)
        recorded.graph.replay()
        return Loss(recorded.loss.total.clone(), recorded.loss.count.clone())

    def _record(self, batch: Batch) -> _Recorded:
        batch = batch.to(self.eager.device)
        scale = torch.ones((), device=self.eager.device)
        before = self.gradients.clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self._run(batch, scale)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.empty_cache()  # what the warm-ups took must not be taken a second time
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            loss = self._run(batch, scale)
        self.gradients.copy_(before)  # the warm-ups left theirs
        return _Recorded(graph, batch, scale, loss)

    def _run(self, batch: Batch, scale: Tensor) -> Loss:
        with narrowed(self.eager.precision, self.eager.device):
            loss: Loss = self.eager.model.loss(batch)
        (loss.total * scale).backward()  # type: ignore[no-untyped-call]
        return Loss(loss.total.detach(), loss.count.detach())


def padded_to_shape(batch: Batch) -> Batch:
    """The batch, padded to one of few shapes; the new rows have no samples and no targets."""
    rows = -len(batch.audio) % ROWS
    samples, tokens = -batch.audio.shape[1] % SAMPLES, -batch.targets.shape[1] % TOKENS
    return replace(
        batch,
        audio=F.pad(batch.audio, (0, samples, 0, rows)),
        lengths=F.pad(batch.lengths, (0, rows)),
        targets=F.pad(batch.targets, (0, tokens, 0, rows)),
        target_lengths=F.pad(batch.target_lengths, (0, rows)),
    )


def backward_of(model: Any, gradients: Tensor, precision: str, device: torch.device) -> Backward:
    """The quicker way for this model on this device."""
    eager = Eager(model, precision, device)
    return Graphed(eager, gradients) if device.type == "cuda" and model.fits_graphs else eager
