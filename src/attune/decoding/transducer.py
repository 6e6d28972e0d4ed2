"""Transducers, greedily: the most probable token each time, for a whole batch at once. RNN-T and TDT.

While a row emits blanks its prediction network stands still. So a step joins the next few frames of every row at once,
skips the blanks among them up to the first label, and advances the prediction network by that label: label looping, in
which no row waits for another. A step has fixed shapes and reads no value back, so that steps can be recorded as a CUDA
graph; on an accelerator only every eighth step waits for the device. Nothing that depends on the batch enters: a row
that is past its own last frame emits nothing.
"""

# B utterances, R active rows, W frames joined in a step, S steps, V tokens, P width of the prediction network's output
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attune.decoding._recurrent import advance_where
from attune.kernels.cuda_graph import capture_graph
from attune.types import Hypothesis, States, TransducerScorer

MAX_LABELS = 10  # in one frame; a model that emits more is caught in a loop
FRAMES_AT_ONCE = 8
STEPS_BETWEEN_SYNCS = 8  # on an accelerator, which has to wait for one; on the CPU there is one at each step
SHARE_TO_PRUNE = 0.25  # fewer finished rows than this are cheaper to keep


def greedy(scorer: TransducerScorer, max_labels: int = MAX_LABELS, graphed: bool = False) -> list[Hypothesis]:
    """The best token of each frame until that is a blank; scored by that one alignment, blanks and durations included.

    After `max_labels` in a frame the search moves to the next. `graphed` records the steps as a CUDA graph, which takes
    a moment for each batch and gives the same result.
    """
    loop = _Loop(scorer, max_labels)
    rows = loop.start()
    has_graph = graphed and len(rows.utterances) > 0
    steps: Callable[[_Rows], tuple[_Rows, _Emissions]] = _Graph(loop, rows) if has_graph else loop.steps
    scores = torch.zeros(len(scorer.lengths), device=scorer.device)
    emissions = []
    while len(rows.utterances):
        rows, new = steps(rows)
        emissions.append(new)
        scores[rows.utterances] = rows.scores
        rows = _active(rows, scorer.lengths, may_prune=not graphed)
    return _hypotheses(emissions, scores.tolist(), scorer.blank)


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Where the greedy search of some streams is, between two chunks; rows in their order."""

    ahead: Tensor  # (R,) frames of the next chunk that are skipped, by a token that lasts (TDT)
    predicted: Tensor  # (R, P)
    states: States

    @staticmethod
    def together(parts: Sequence[StreamRows]) -> StreamRows:
        """Several as the rows of one."""
        states = tuple(torch.cat(each) for each in zip(*(part.states for part in parts), strict=True))
        ahead, predicted = (torch.cat([getattr(part, name) for part in parts]) for name in ("ahead", "predicted"))
        return StreamRows(ahead, predicted, states)

    def apart(self) -> list[StreamRows]:
        """Each row for itself."""
        rows = [slice(row, row + 1) for row in range(len(self.ahead))]
        return [
            StreamRows(self.ahead[row], self.predicted[row], tuple(each[row] for each in self.states)) for row in rows
        ]


def start_stream(scorer: TransducerScorer) -> StreamRows:
    """One stream before its first chunk."""
    predicted, states = scorer.start(1)
    return StreamRows(torch.zeros(1, dtype=torch.long, device=scorer.device), predicted, states)


def greedy_chunk(
    scorer: TransducerScorer, before: StreamRows, max_labels: int = MAX_LABELS
) -> tuple[list[Hypothesis], StreamRows]:
    """What the next chunk of each stream adds, with frames counted from its beginning, and where the search is then.

    All chunks of a stream together have the tokens that `greedy` finds in the whole.
    """
    loop = _Loop(scorer, max_labels)
    utterances = torch.arange(len(before.ahead), device=scorer.device)
    scores = torch.zeros(len(utterances), device=scorer.device)
    none = torch.zeros_like(utterances)
    rows = _Rows(utterances, before.ahead, none, scores, before.predicted, before.states)
    emissions = []
    while bool((rows.frames < scorer.lengths).any()):
        rows, new = loop.steps(rows)
        emissions.append(new)
    after = StreamRows((rows.frames - scorer.lengths).clamp(min=0), rows.predicted, rows.states)
    return _hypotheses(emissions, rows.scores.tolist(), scorer.blank), after


def steps_between_syncs(device: torch.device) -> int:
    """How many steps to take before asking the device which utterances have finished."""
    return 1 if device.type == "cpu" else STEPS_BETWEEN_SYNCS


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where each row is."""

    utterances: Tensor  # (R,)
    frames: Tensor  # (R,)
    repeats: Tensor  # (R,) labels emitted in this frame
    scores: Tensor  # (R,)
    predicted: Tensor  # (R, P)
    states: States

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.utterances, self.frames, self.repeats, self.scores, self.predicted, *self.states)

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> _Rows:
        utterances, frames, repeats, scores, predicted, *states = tensors
        return _Rows(utterances, frames, repeats, scores, predicted, tuple(states))


@dataclass(frozen=True, slots=True)
class _Emissions:
    """What the rows emitted in some steps; a blank is nothing."""

    utterances: Tensor  # (R,)
    tokens: Tensor  # (S, R)
    frames: Tensor  # (S, R)
    log_probs: Tensor  # (S, R)


@dataclass(frozen=True, slots=True)
class _BestTokens:
    """The best token of each of the frames joined in a step, and its duration; (R, W) each."""

    tokens: Tensor  # blank beyond an utterance's last frame
    log_probs: Tensor
    durations: Tensor
    gains: Tensor  # of token and duration

    def at(self, places: Tensor) -> _BestTokens:
        """Those of one frame for each row (R, 1)."""
        every = (self.tokens, self.log_probs, self.durations, self.gains)
        return _BestTokens(*(each.gather(1, places) for each in every))


class _Loop:
    """The step that is repeated, and what it needs besides the rows."""

    def __init__(self, scorer: TransducerScorer, max_labels: int) -> None:
        self.scorer, self.max_labels = scorer, max_labels
        self.offsets = torch.arange(FRAMES_AT_ONCE, device=scorer.device)
        self.durations = torch.tensor(scorer.durations or (0,), device=scorer.device)
        self.steps_at_once = steps_between_syncs(scorer.device)

    def start(self) -> _Rows:
        """A row for each utterance that has a frame."""
        utterances = self.scorer.lengths.nonzero()[:, 0]
        none = torch.zeros_like(utterances)
        predicted, states = self.scorer.start(len(utterances))
        return _Rows(utterances, none, none, torch.zeros(len(none), device=none.device), predicted, states)

    def steps(self, rows: _Rows) -> tuple[_Rows, _Emissions]:
        """Some steps without a sync, and what was emitted in them."""
        found = []
        for _ in range(self.steps_at_once):
            rows, *emitted = self.step(rows)
            found.append(emitted)
        tokens, frames, log_probs = (torch.stack(each) for each in zip(*found, strict=True))
        return rows, _Emissions(rows.utterances, tokens, frames, log_probs)

    def step(self, rows: _Rows) -> tuple[_Rows, Tensor, Tensor, Tensor]:
        """Each row's next label within the joined frames, if there is one, with its frame and log-probability."""
        best = self._join(rows)
        skipped, cost = _skip_blanks(best, self.scorer.blank)
        at = best.at(skipped.clamp(max=FRAMES_AT_ONCE - 1))
        tokens = at.tokens.masked_fill(skipped >= FRAMES_AT_ONCE, self.scorer.blank)[:, 0]
        is_label = tokens != self.scorer.blank
        durations = at.durations[:, 0].masked_fill(~is_label, 0)
        frames = rows.frames + skipped[:, 0]

        repeats = rows.repeats.masked_fill(skipped[:, 0] > 0, 0) + is_label
        is_full = repeats >= self.max_labels
        next_frames = frames + torch.where(is_full & (durations == 0), 1, durations)
        scores = rows.scores + cost[:, 0] + at.gains[:, 0].masked_fill(~is_label, 0)
        predicted, states = advance_prediction(self.scorer, tokens, rows.predicted, rows.states)
        repeats = repeats.masked_fill(is_full | (durations > 0), 0)
        after = _Rows(rows.utterances, next_frames, repeats, scores, predicted, states)
        return after, tokens, frames, at.log_probs[:, 0]

    def _join(self, rows: _Rows) -> _BestTokens:
        """Join the next frames of each row with the output of its prediction network."""
        last = self.scorer.lengths[rows.utterances, None] - 1
        frames = rows.frames[:, None] + self.offsets  # (R, W)
        is_over = frames > last
        utterances = rows.utterances[:, None].expand_as(frames).flatten()
        predicted = rows.predicted[:, None].expand(*frames.shape, -1).flatten(0, 1)
        tokens, durations = self.scorer.join(utterances, frames.minimum(last).flatten(), predicted)
        log_probs, best = (each.view(frames.shape) for each in tokens.max(1))
        best = best.masked_fill(is_over, self.scorer.blank)
        if not self.scorer.durations:
            return _BestTokens(best, log_probs, torch.zeros_like(best).masked_fill(is_over, -1), log_probs)
        gains, chosen = (each.view(frames.shape) for each in durations.max(1))
        return _BestTokens(best, log_probs, self.durations[chosen].masked_fill(is_over, -1), log_probs + gains)


def _skip_blanks(best: _BestTokens, blank: int) -> tuple[Tensor, Tensor]:
    """How many frames each row skips before its first label (R, 1), and the gains of those blanks.

    A blank takes a frame at least. Beyond the last frame, where durations are -1, nothing is skipped.
    """
    jumps = best.durations.clamp(min=1).masked_fill((best.tokens != blank) | (best.durations < 0), 0)
    skipped, cost = torch.zeros_like(jumps[:, :1]), torch.zeros_like(best.gains[:, :1])
    for _ in range(FRAMES_AT_ONCE):
        here = skipped.clamp(max=FRAMES_AT_ONCE - 1)
        jump = jumps.gather(1, here).masked_fill(skipped >= FRAMES_AT_ONCE, 0)
        cost = cost + best.gains.gather(1, here).masked_fill(jump == 0, 0)
        skipped = skipped + jump
    return skipped, cost


def advance_prediction(
    scorer: TransducerScorer, tokens: Tensor, predicted: Tensor, states: States
) -> tuple[Tensor, States]:
    """The prediction network's output and states once the rows have these tokens (R,); at a blank it stands still."""
    is_label = tokens != scorer.blank
    some_label = 1 if scorer.blank == 0 else 0  # it need not know the blank
    labels = tokens.masked_fill(~is_label, some_label)
    return advance_where(scorer.predict, labels, is_label, predicted, states)


def _active(rows: _Rows, lengths: Tensor, may_prune: bool) -> _Rows:
    """The rows without those that have finished, once these are many enough."""
    is_active = rows.frames < lengths[rows.utterances]
    active = int(is_active.sum())
    is_worth_it = may_prune and len(is_active) - active >= SHARE_TO_PRUNE * len(is_active)
    if active and not is_worth_it:
        return rows
    return _Rows.of([each[is_active] for each in rows.tensors()])


class _Graph:
    """Some steps of the loop, recorded once for rows of this shape and then replayed."""

    def __init__(self, loop: _Loop, rows: _Rows) -> None:
        self.rows = _Rows.of([each.clone() for each in rows.tensors()])
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries set themselves up at the first call, which cannot be recorded
            loop.steps(self.rows)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph, self.emissions = capture_graph(lambda: self._steps(loop))

    def _steps(self, loop: _Loop) -> _Emissions:
        after, emissions = loop.steps(self.rows)
        for old, new in zip(self.rows.tensors(), after.tensors(), strict=True):
            old.copy_(new)
        return emissions

    def __call__(self, rows: _Rows) -> tuple[_Rows, _Emissions]:
        """Replay the steps; the rows are those of this graph."""
        self.graph.replay()
        new = self.emissions
        return self.rows, _Emissions(rows.utterances, new.tokens.clone(), new.frames.clone(), new.log_probs.clone())


def _hypotheses(emissions: Sequence[_Emissions], scores: Sequence[float], blank: int) -> list[Hypothesis]:
    """What each utterance's row emitted, from its first step to its last."""
    labels: list[list[tuple[int, int, float]]] = [[] for _ in scores]
    for part in emissions:
        steps = zip(part.tokens.tolist(), part.frames.tolist(), part.log_probs.exp().tolist(), strict=True)
        utterances = part.utterances.tolist()
        for step in steps:
            for utterance, *label in zip(utterances, *step, strict=True):
                if label[0] != blank:
                    labels[utterance].append((label[0], label[1], label[2]))
    return [hypothesis(found, score) for found, score in zip(labels, scores, strict=True)]


def hypothesis(labels: Sequence[tuple[int, int, float]], score: float) -> Hypothesis:
    """A hypothesis of labels with a frame and a probability each."""
    tokens, frames, confidences = zip(*labels, strict=True) if labels else ((), (), ())
    return Hypothesis(tokens, score, frames, confidences)
