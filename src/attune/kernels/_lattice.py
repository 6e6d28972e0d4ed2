"""A transducer's lattice in plain torch: forward-backward over all alignments of the target.

An alignment starts at frame 0 with no label emitted and ends when a blank steps past the last frame with every label
emitted. Alpha and beta are float64 whatever the scores are: over a long utterance log-probabilities reach thousands,
where float32 has three digits left, and each arc's posterior is a difference of them.
"""

# B utterances, R lattice cells of all utterances (frame by frame, each with its labels), D durations,
# N diagonals (frame + label), W labels padded
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LANES = 16  # whole vectors of the CPU: an odd remainder would be computed by other instructions, and round otherwise
NEG_INF = float("-inf")


@dataclass(frozen=True, slots=True)
class Lattice:
    """The kind of transducer: `blank` is the last token; with `durations` (TDT) a token also predicts how many frames
    to advance."""

    blank: int
    durations: tuple[int, ...] = ()
    sigma: float = 0.0  # taken from every token's log-probability (TDT's logit under-normalization)
    fastemit: float = 0.0  # FastEmit: extra weight of the gradient of emitting a label
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"


@dataclass(frozen=True, slots=True)
class Arc:
    """A step through the lattice: a blank advances in time, a label is emitted and may advance too."""

    frames: int
    emits: bool
    duration: int | None  # which duration's log-probability it has

    @property
    def diagonals(self) -> int:
        """How many diagonals it crosses."""
        return self.frames + int(self.emits)


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of each utterance's lattice: frames × (labels + 1)."""

    frames: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def rows(self) -> int:
        """All cells of all utterances."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """The cells of each utterance."""
        return [frames * (labels + 1) for frames, labels in zip(self.frames, self.labels, strict=True)]

    @property
    def starts(self) -> list[int]:
        """The first cell of each utterance."""
        return [sum(self.sizes[:index]) for index in range(len(self.frames))]


@dataclass(frozen=True, slots=True)
class Cells:
    """A value for each cell's blank (R,), next label (R,) and durations (R, D)."""

    blank: Tensor
    label: Tensor
    durations: Tensor


def arcs_of(lattice: Lattice) -> Iterator[Arc]:
    """The arcs that leave a cell; a blank of duration 0 is excluded, it would loop forever."""
    if not lattice.durations:
        yield Arc(1, False, None)
        yield Arc(0, True, None)
    for index, frames in enumerate(lattice.durations):
        if frames:
            yield Arc(frames, False, index)
        yield Arc(frames, True, index)


def posteriors(log_probs: Cells, extent: Extent, lattice: Lattice) -> tuple[Tensor, Cells]:
    """The log-probability of each target (B,), and the occupancy (posterior) of each cell's blank, label and durations.

    Occupancies are the gradients of the target's log-probability, so those of labels include FastEmit's weight.
    """
    arcs = list(arcs_of(lattice))
    places = _places(extent, log_probs.blank.device)
    scores = [places.skew(_score(arc, log_probs, places)) for arc in arcs]
    alpha, total = _alphas(arcs, scores, places)
    beta = _betas(arcs, scores, places)
    # A target without any alignment has no gradient.
    norm = total.masked_fill(total == NEG_INF, float("inf"))[:, None]
    occupancy = Cells(*(torch.zeros_like(part) for part in (log_probs.blank, log_probs.label, log_probs.durations)))
    for arc, score in zip(arcs, scores, strict=True):
        posterior = places.straighten((alpha + score + _beta_beyond(beta, arc) - norm).exp_()).to(log_probs.blank.dtype)
        if arc.emits:
            posterior = posterior * (1 + lattice.fastemit)
        (occupancy.label if arc.emits else occupancy.blank).add_(posterior)
        if arc.duration is not None:
            occupancy.durations[:, arc.duration] += posterior
    return total, occupancy


@dataclass(frozen=True, slots=True)
class _DiagonalLayout:
    """The position of each cell when the lattices are stored diagonal by diagonal: (N, B, W)."""

    where: Tensor  # (R,) position in the flattened (N, B, W)
    left: Tensor  # (R,) frames from this one to the end
    shape: tuple[int, int, int]
    ends: Tensor  # (B,) position of each utterance's end

    def skew(self, values: Tensor) -> Tensor:
        skewed = values.new_full((self.shape[0] * self.shape[1] * self.shape[2],), NEG_INF)
        skewed[self.where] = values
        return skewed.view(self.shape)

    def straighten(self, skewed: Tensor) -> Tensor:
        return skewed.view(-1)[self.where]


def _places(extent: Extent, device: torch.device) -> _DiagonalLayout:
    batch = len(extent.frames)
    width = -(-(max(extent.labels, default=0) + 1) // LANES) * LANES
    diagonals = max(map(sum, zip(extent.frames, extent.labels, strict=True)), default=0) + 1
    where, left, ends = [], [], []
    for index, (frames, labels) in enumerate(zip(extent.frames, extent.labels, strict=True)):
        frame = torch.arange(frames, device=device)[:, None].expand(frames, labels + 1)
        label = torch.arange(labels + 1, device=device)
        where.append((((frame + label) * batch + index) * width + label).flatten())
        left.append((frames - frame).flatten())
        ends.append(((frames + labels) * batch + index) * width + labels)
    end = torch.tensor(ends, device=device)
    return _DiagonalLayout(_joined(where, device), _joined(left, device), (diagonals, batch, width), end)


def _joined(parts: Sequence[Tensor], device: torch.device) -> Tensor:
    return torch.cat([*parts, torch.empty(0, dtype=torch.int64, device=device)])


def _score(arc: Arc, log_probs: Cells, places: _DiagonalLayout) -> Tensor:
    """The arc's log-probability in every cell (R,), in float64."""
    score = (log_probs.label if arc.emits else log_probs.blank).double()
    if arc.duration is not None:
        score = score + log_probs.durations[:, arc.duration].double()
    # Only a blank may step past the last frame: a label there would end the alignment as well.
    return score.masked_fill(places.left <= arc.frames, NEG_INF) if arc.emits else score


def _alphas(arcs: Sequence[Arc], scores: Sequence[Tensor], places: _DiagonalLayout) -> tuple[Tensor, Tensor]:
    """The log-probability of reaching each cell (N, B, W), and the end (B,)."""
    alpha = torch.full(places.shape, NEG_INF, dtype=torch.float64, device=places.where.device)
    alpha[0, :, 0] = 0
    for diagonal in range(1, places.shape[0]):
        ways = []
        for arc, score in zip(arcs, scores, strict=True):
            if (origin := diagonal - arc.diagonals) >= 0:
                way = alpha[origin] + score[origin]
                ways.append(F.pad(way[:, :-1], (1, 0), value=NEG_INF) if arc.emits else way)
        if ways:
            alpha[diagonal] = reduce(torch.logaddexp, ways)
    return alpha, alpha.view(-1)[places.ends]


def _betas(arcs: Sequence[Arc], scores: Sequence[Tensor], places: _DiagonalLayout) -> Tensor:
    """The log-probability of reaching the end from each cell (N, B, W)."""
    beta = torch.full(places.shape, NEG_INF, dtype=torch.float64, device=places.where.device)
    beta.view(-1)[places.ends] = 0
    for diagonal in reversed(range(places.shape[0] - 1)):
        way = beta[diagonal]  # the end of a shorter utterance
        for arc, score in zip(arcs, scores, strict=True):
            if (goal := diagonal + arc.diagonals) < places.shape[0]:
                way = torch.logaddexp(way, score[diagonal] + (_next_label(beta[goal]) if arc.emits else beta[goal]))
        beta[diagonal] = way
    return beta


def _beta_beyond(beta: Tensor, arc: Arc) -> Tensor:
    """Beta of the cell that each cell's arc leads to (N, B, W)."""
    beyond = beta[arc.diagonals :]
    gone = beta.new_full((beta.shape[0] - beyond.shape[0], *beta.shape[1:]), NEG_INF)
    return torch.cat([_next_label(beyond) if arc.emits else beyond, gone])


def _next_label(values: Tensor) -> Tensor:
    """Each cell gets the value of the cell with one more label."""
    return F.pad(values[..., 1:], (0, 1), value=NEG_INF)
