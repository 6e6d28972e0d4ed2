"""One micro-batch forward and backward: eagerly, or as a CUDA graph where a model allows it.

Small models wait for Python more than for the device. A graph replays the thousand launches of a micro-batch as one;
there is one graph for each of a few shapes, and batches are padded up to them with rows that count nothing.
"""

# B batch, T samples, U target tokens
from dataclasses import dataclass, fields, replace
from typing import Protocol

import torch
from torch import Tensor

from attune.contracts import SpeechModel
from attune.kernels.cuda_graph import capture_graph
from attune.training.precision import narrowed
from attune.types import Batch, Loss, Masks, with_tensors

ROWS, TOKENS = 16, 32  # shapes are multiples of these: few, as each is recorded; the model chooses the samples
GraphShape = tuple[tuple[int, ...], ...]  # of the audio, and of each tensor of the targets
MOST_MEMORY = 0.4  # of the device, that training may take beside its graphs


class Backward(Protocol):
    """Adds the gradient of a batch's loss, times `scale`, to the parameters' gradients."""

    def __call__(self, batch: Batch, scale: float) -> Loss:
        """The loss, detached."""


@dataclass(frozen=True, slots=True)
class Eager:
    """Runs the model as it is written."""

    model: SpeechModel
    precision: str
    device: torch.device

    def __call__(self, batch: Batch, scale: float) -> Loss:
        """The loss, detached."""
        with narrowed(self.precision, self.device):
            loss = self.model.loss(batch.to(self.device))
        (loss.total * scale).backward()  # type: ignore[no-untyped-call]
        return Loss(loss.total.detach(), loss.count.detach())


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    batch: Batch  # the memory that the graph reads
    scale: Tensor
    loss: Loss  # the memory that it writes


class Graphed:
    """Runs a shape as it is written when it first comes, records it the second time, and replays it from then on."""

    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self._seen: set[GraphShape] = set()
        self._recorded: dict[GraphShape, _Recorded] = {}
        # One memory for all graphs: only one of them runs at a time, and what it leaves is copied at once.
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch, scale: float) -> Loss:
        """The loss, detached."""
        samples = self.eager.model.graph_samples(batch.audio.shape[1])
        if samples is None:
            return self.eager(batch, scale)
        shape = graph_shape(batch, samples)
        if shape not in self._recorded:
            wider = padded(batch, shape, self.eager.device)
            if shape not in self._seen or not self._has_room():
                self._seen.add(shape)
                return self.eager(wider, scale)
            self._recorded[shape] = self._record(wider)
        recorded = self._recorded[shape]
        write_over(recorded.batch, batch)
        recorded.scale.fill_(scale)
        recorded.graph.replay()
        return Loss(recorded.loss.total.clone(), recorded.loss.count.clone())

    def _has_room(self) -> bool:
        """Whether a second memory, for graphs, fits; batches that leave no room for it do not wait for Python."""
        device = self.eager.device
        total: int = torch.cuda.get_device_properties(device).total_memory
        return bool(self._recorded) or torch.cuda.max_memory_allocated(device) < MOST_MEMORY * total

    def _record(self, batch: Batch) -> _Recorded:
        scale = torch.ones((), device=self.eager.device)
        graph, loss = capture_graph(lambda: self._run(batch, scale), self._memory)
        return _Recorded(graph, batch, scale, loss)

    def _run(self, batch: Batch, scale: Tensor) -> Loss:
        with narrowed(self.eager.precision, self.eager.device):
            loss = self.eager.model.loss(batch)
        (loss.total * scale).backward()  # type: ignore[no-untyped-call]
        return Loss(loss.total.detach(), loss.count.detach())


def graph_shape(batch: Batch, samples: int) -> GraphShape:
    """The shape that a batch is padded to: `samples` of audio, and whatever the targets are rounded up."""
    rows = _up(len(batch.ids), ROWS)
    targets = (tuple(_up(size, TOKENS) for size in each.shape[1:]) for each in _target_tensors(batch))
    return ((rows, samples), *((rows, *sizes) for sizes in targets))


def padded(batch: Batch, shape: GraphShape, device: torch.device) -> Batch:
    """The batch on a device in a shape of `graph_shape`; the new rows have no samples and no targets."""
    audio, *sizes = shape
    sized = iter(sizes)
    wider = replace(
        batch,
        audio=batch.audio.new_empty(audio, device=device),
        lengths=batch.lengths.new_empty(audio[0], device=device),
        targets=with_tensors(batch.targets, lambda tensor: tensor.new_empty(next(sized), device=device)),
        masks=batch.masks and _room_for(batch.masks, audio[0], device),
    )
    write_over(wider, batch)
    return wider


def write_over(wider: Batch, batch: Batch) -> None:
    """Put a batch in the place of another, with zeros for what it does not fill."""
    for old, new in zip(_tensors(wider), _tensors(batch), strict=True):
        new = new[tuple(map(slice, old.shape))]  # a manifest's rounding may leave a few samples beyond the window
        old.zero_()
        old[tuple(map(slice, new.shape))].copy_(new, non_blocking=True)


def _room_for(masks: Masks, rows: int, device: torch.device) -> Masks:
    return replace(masks, draws=masks.draws.new_empty(rows, *masks.draws.shape[1:], device=device))


def _tensors(batch: Batch) -> list[Tensor]:
    masks = [batch.masks.draws] if batch.masks else []
    return [batch.audio, batch.lengths, *_target_tensors(batch), *masks]


def _target_tensors(batch: Batch) -> list[Tensor]:
    return [getattr(batch.targets, each.name) for each in fields(batch.targets)]


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def backward_of(model: SpeechModel, precision: str, device: torch.device) -> Backward:
    """The quicker way for this model on this device."""
    eager = Eager(model, precision, device)
    return Graphed(eager) if device.type == "cuda" else eager
