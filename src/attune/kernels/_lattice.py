"""A transducer's lattice in plain torch: how probable each arc is among all paths that spell the target.

A path starts at frame 0 with nothing said and ends when a blank steps past the last frame with everything said. The
sums over paths are kept in float64 whatever the scores are: over a long utterance the log-probabilities reach
thousands, where float32 has three digits left, and each arc's posterior is a difference of them.
"""

# B utterances, R lattice cells of all utterances (frame by frame, each with its labels), D durations,
# N diagonals (frames + labels spent), W labels padded
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LANES = 16  # whole vectors of the CPU: an odd remainder would be computed by other instructions, and round otherwise
IMPOSSIBLE = float("-inf")


@dataclass(frozen=True, slots=True)
class Lattice:
    """What a token may do: `blank` is the last token; with `durations` (TDT) a token also says how far to go on."""

    blank: int
    durations: tuple[int, ...] = ()
    sigma: float = 0.0  # taken from every token's log-probability (TDT's logit under-normalization)
    fastemit: float = 0.0  # how much more the gradient of saying a label counts
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"


@dataclass(frozen=True, slots=True)
class Arc:
    """A step through the lattice: a blank goes on in time, a label says one more and may go on too."""

    frames: int
    says: bool
    duration: int | None  # which duration's log-probability it has

    @property
    def diagonals(self) -> int:
        """How many diagonals it crosses."""
        return self.frames + int(self.says)


@dataclass(frozen=True, slots=True)
class Extent:
    """How large each utterance's own lattice is: its frames times its labels and one."""

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
    """Something for each cell's blank (R,), its next label (R,) and its durations (R, D)."""

    blank: Tensor
    label: Tensor
    durations: Tensor


def arcs_of(lattice: Lattice) -> Iterator[Arc]:
    """The arcs that leave a cell. A blank that stays where it is would be a path without end."""
    if not lattice.durations:
        yield Arc(1, False, None)
        yield Arc(0, True, None)
    for index, frames in enumerate(lattice.durations):
        if frames:
            yield Arc(frames, False, index)
        yield Arc(frames, True, index)


def posteriors(log_probs: Cells, extent: Extent, lattice: Lattice) -> tuple[Tensor, Cells]:
    """The log-probability of each target (B,), and what share of it takes each cell's blank, label and durations.

    The shares are the negated gradients of the target's log-probability; so those of labels carry FastEmit's emphasis.
    """
    arcs = list(arcs_of(lattice))
    places = _places(extent, log_probs.blank.device)
    scores = [places.skew(_score(arc, log_probs, places)) for arc in arcs]
    before, total = _walk_on(arcs, scores, places)
    after = _walk_back(arcs, scores, places)
    # A target that no path spells has no gradient.
    norm = total.masked_fill(total == IMPOSSIBLE, float("inf"))[:, None]
    shares = Cells(*(torch.zeros_like(part) for part in (log_probs.blank, log_probs.label, log_probs.durations)))
    for arc, score in zip(arcs, scores, strict=True):
        share = places.straighten((before + score + _ahead(after, arc) - norm).exp_()).to(log_probs.blank.dtype)
        if arc.says:
            share = share * (1 + lattice.fastemit)
        (shares.label if arc.says else shares.blank).add_(share)
        if arc.duration is not None:
            shares.durations[:, arc.duration] += share
    return total, shares


@dataclass(frozen=True, slots=True)
class _Places:
    """Where each cell stands when the lattices are laid side by side along their diagonals: (N, B, W)."""

    where: Tensor  # (R,) position in the flattened (N, B, W)
    left: Tensor  # (R,) frames from this one to the end
    shape: tuple[int, int, int]
    ends: Tensor  # (B,) position of each utterance's end

    def skew(self, values: Tensor) -> Tensor:
        skewed = values.new_full((self.shape[0] * self.shape[1] * self.shape[2],), IMPOSSIBLE)
        skewed[self.where] = values
        return skewed.view(self.shape)

    def straighten(self, skewed: Tensor) -> Tensor:
        return skewed.view(-1)[self.where]


def _places(extent: Extent, device: torch.device) -> _Places:
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
    return _Places(_joined(where, device), _joined(left, device), (diagonals, batch, width), end)


def _joined(parts: Sequence[Tensor], device: torch.device) -> Tensor:
    return torch.cat([*parts, torch.empty(0, dtype=torch.int64, device=device)])


def _score(arc: Arc, log_probs: Cells, places: _Places) -> Tensor:
    """The arc's log-probability in every cell (R,), in float64."""
    score = (log_probs.label if arc.says else log_probs.blank).double()
    if arc.duration is not None:
        score = score + log_probs.durations[:, arc.duration].double()
    # Only a blank may step past the last frame: a label there would end the path as well.
    return score.masked_fill(places.left <= arc.frames, IMPOSSIBLE) if arc.says else score


def _walk_on(arcs: Sequence[Arc], scores: Sequence[Tensor], places: _Places) -> tuple[Tensor, Tensor]:
    """The log-probability of reaching each cell (N, B, W), and the end (B,)."""
    before = torch.full(places.shape, IMPOSSIBLE, dtype=torch.float64, device=places.where.device)
    before[0, :, 0] = 0
    for diagonal in range(1, places.shape[0]):
        ways = []
        for arc, score in zip(arcs, scores, strict=True):
            if (origin := diagonal - arc.diagonals) >= 0:
                way = before[origin] + score[origin]
                ways.append(F.pad(way[:, :-1], (1, 0), value=IMPOSSIBLE) if arc.says else way)
        if ways:
            before[diagonal] = reduce(torch.logaddexp, ways)
    return before, before.view(-1)[places.ends]


def _walk_back(arcs: Sequence[Arc], scores: Sequence[Tensor], places: _Places) -> Tensor:
    """The log-probability of reaching the end from each cell (N, B, W)."""
    after = torch.full(places.shape, IMPOSSIBLE, dtype=torch.float64, device=places.where.device)
    after.view(-1)[places.ends] = 0
    for diagonal in reversed(range(places.shape[0] - 1)):
        way = after[diagonal]  # the end of a shorter utterance
        for arc, score in zip(arcs, scores, strict=True):
            if (goal := diagonal + arc.diagonals) < places.shape[0]:
                way = torch.logaddexp(way, score[diagonal] + (_said(after[goal]) if arc.says else after[goal]))
        after[diagonal] = way
    return after


def _ahead(after: Tensor, arc: Arc) -> Tensor:
    """What follows each cell's arc (N, B, W)."""
    beyond = after[arc.diagonals :]
    gone = after.new_full((after.shape[0] - beyond.shape[0], *after.shape[1:]), IMPOSSIBLE)
    return torch.cat([_said(beyond) if arc.says else beyond, gone])


def _said(values: Tensor) -> Tensor:
    """Each cell gets the value of the one with a label more."""
    return F.pad(values[..., 1:], (0, 1), value=IMPOSSIBLE)
