"""Forced alignment by a transducer: the most probable path of given labels through its lattice, RNN-T and TDT.

All cells of a frame are joined at once, and only the log-probabilities of a blank and of each cell's next label are
kept. Labels that take no time make a chain within a frame: with C the running sum of their log-probabilities, the best
way into cell u is C[u] + max over v ≤ u of (entered[v] - C[v]), a cumulative maximum. Nothing is read back before the
end.
"""

# B utterances, F frames, U labels, D durations
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attune.decoding.ctc_alignment import ForcedTokens
from attune.types import Hypothesis, TransducerScorer

NEVER = float("-inf")


def align(scorer: TransducerScorer, rows: Sequence[ForcedTokens]) -> list[Hypothesis | None]:
    """The labels of each row with the frame in which each is emitted; None where no path has all of them.

    A label's confidence is its probability there. With durations it lasts as long as they say, otherwise one frame.
    """
    lattice = _Lattice.of(scorer, rows)
    frames = int(scorer.lengths.max()) if len(rows) else 0
    for frame in range(frames):
        lattice.advance(frame)
    scores, last = _last_cells(lattice, rows)
    return [
        _hypothesis(lattice.path(row, last[row]), scores[row], rows[row]) if scores[row] > NEVER else None
        for row in range(len(rows))
    ]


@dataclass(frozen=True, slots=True)
class _Lattice:
    """How well each cell (frame, label) can be reached, and how it was."""

    scorer: TransducerScorer
    labels: Tensor  # (B, U), padded with any label
    predicted: Tensor  # (B, U + 1, P): the prediction network's output after each number of labels
    durations: tuple[int, ...]
    entered: Tensor  # (F + longest duration, B, U + 1): the best way into a cell from earlier frames
    ways: Tensor  # of the same shape: which arc that was, blanks of each duration before labels of each
    chains: Tensor  # (F, B, U + 1): the cell of the same frame from which labels without duration lead here
    log_probs: Tensor  # (F, B, U) of the labels

    @staticmethod
    def of(scorer: TransducerScorer, rows: Sequence[ForcedTokens]) -> _Lattice:
        some_label = 1 if scorer.blank == 0 else 0
        longest = max((len(row.tokens) for row in rows), default=0)
        padded = [[*row.tokens, *[some_label] * (longest - len(row.tokens))] for row in rows]
        labels = torch.tensor(padded, dtype=torch.long, device=scorer.device).view(len(rows), longest)
        durations = scorer.durations or (0, 1)
        frames = int(scorer.lengths.max())
        shape = (frames + max(durations), len(rows), longest + 1)
        entered = torch.full(shape, NEVER, dtype=torch.double, device=scorer.device)
        entered[0, :, 0] = 0.0
        ways = torch.zeros(shape, dtype=torch.int8, device=scorer.device)
        chains = torch.zeros(frames, *shape[1:], dtype=torch.int32, device=scorer.device)
        log_probs = torch.zeros(frames, len(rows), longest, device=scorer.device)
        return _Lattice(scorer, labels, _predict(scorer, labels), durations, entered, ways, chains, log_probs)

    def advance(self, frame: int) -> None:
        """Leave the cells of a frame in every way there is."""
        blanks, labels, durations = self._join(frame)
        self.log_probs[frame] = labels
        reached, self.chains[frame] = self._chained(frame, labels, durations)
        is_over = frame >= self.scorer.lengths[:, None]
        reached = reached.masked_fill(is_over, NEVER)
        for number, duration in enumerate(self.durations):
            if duration > 0:
                gains = durations[number]
                self._enter(frame + duration, number, reached + blanks + gains)
                if self.scorer.durations:
                    emitted = reached[:, :-1] + labels + gains[:, :-1]
                    self._enter(frame + duration, len(self.durations) + number, _after_label(emitted))

    def _join(self, frame: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Log-probabilities of a blank (B, U + 1), of the next label (B, U), and of each duration (B, U + 1)."""
        utterances, cells = self.predicted.shape[:2]
        rows = torch.arange(utterances, device=self.labels.device).repeat_interleave(cells)
        frames = (self.scorer.lengths - 1).clamp(min=0, max=frame)[rows]
        tokens, durations = self.scorer.join(rows, frames, self.predicted.flatten(0, 1))
        tokens = tokens.view(utterances, cells, -1)
        labels = tokens[:, :-1].gather(2, self.labels[..., None])[..., 0]
        if not self.scorer.durations:  # a label stays in its frame, a blank leads to the next
            free = torch.zeros(utterances, cells, device=tokens.device, dtype=tokens.dtype)
            return tokens[..., self.scorer.blank], labels, [free, free]
        return tokens[..., self.scorer.blank], labels, list(durations.view(utterances, cells, -1).unbind(2))

    def _chained(self, frame: int, labels: Tensor, durations: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The best way to each cell of a frame, and from which of its cells labels without duration led there."""
        entered = self.entered[frame]
        if 0 not in self.durations:
            own = torch.arange(entered.shape[1], dtype=torch.int32, device=entered.device)
            return entered, own.expand_as(entered)
        gains = labels.double() + durations[self.durations.index(0)][:, :-1]
        sums = torch.nn.functional.pad(gains.cumsum(1), (1, 0))
        best, origins = (entered - sums).cummax(1)
        return best + sums, origins.int()

    def _enter(self, frame: int, way: int, scores: Tensor) -> None:
        is_better = scores > self.entered[frame]
        self.entered[frame] = torch.where(is_better, scores, self.entered[frame])
        self.ways[frame] = torch.where(is_better, way, self.ways[frame])

    def path(self, row: int, last: tuple[int, int]) -> list[tuple[int, int, float]]:
        """Frame, duration and log-probability of each label on the way to a cell."""
        ways, chains = self.ways[:, row].cpu().numpy(), self.chains[:, row].cpu().numpy()
        log_probs = self.log_probs[:, row].cpu().numpy()
        return _backtrack(ways, chains, log_probs, self.durations, last)


def _predict(scorer: TransducerScorer, labels: Tensor) -> Tensor:
    """The prediction network's output after each number of labels (B, U + 1, P)."""
    output, states = scorer.start(len(labels))
    outputs = [output]
    for column in labels.unbind(1):
        output, states = scorer.predict(column, states)
        outputs.append(output)
    return torch.stack(outputs, 1)


def _after_label(scores: Tensor) -> Tensor:
    return torch.nn.functional.pad(scores, (1, 0), value=NEVER)


def _last_cells(lattice: _Lattice, rows: Sequence[ForcedTokens]) -> tuple[list[float], list[tuple[int, int]]]:
    """The score and the place of each row's end: past its last frame, after all labels unless it may stop."""
    scores, cells = [], []
    for row, (forced, length) in enumerate(zip(rows, lattice.scorer.lengths.tolist(), strict=True)):
        ends = lattice.entered[length : length + max(lattice.durations), row].cpu().numpy()  # a jump may go farther
        count = len(forced.tokens)
        allowed = ends[:, : count + 1] if forced.may_stop else ends[:, count : count + 1]
        place, label = np.unravel_index(int(allowed.argmax()), allowed.shape)
        scores.append(float(allowed[place, label]))
        cells.append((length + int(place), int(label) + (0 if forced.may_stop else count)))
    return scores, cells


def _backtrack(
    ways: NDArray[np.int8],
    chains: NDArray[np.int32],
    log_probs: NDArray[np.float32],
    durations: tuple[int, ...],
    last: tuple[int, int],
) -> list[tuple[int, int, float]]:
    frame, label = last
    found: list[tuple[int, int, float]] = []
    while frame > 0:
        emits, number = divmod(int(ways[frame, label]), len(durations))
        frame -= durations[number]
        if emits:
            label -= 1
            found.append((frame, durations[number], float(log_probs[frame, label])))
        first = int(chains[frame, label])
        found += [(frame, 0, float(log_probs[frame, each])) for each in range(label - 1, first - 1, -1)]
        label = first
    return found[::-1]


def _hypothesis(path: Sequence[tuple[int, int, float]], score: float, row: ForcedTokens) -> Hypothesis:
    frames = tuple(frame for frame, _, _ in path)
    ends = tuple(frame + max(1, duration) for frame, duration, _ in path)
    confidences = tuple(float(np.exp(log_prob)) for _, _, log_prob in path)
    return Hypothesis(row.tokens[: len(path)], score, frames, confidences, ends=ends)
