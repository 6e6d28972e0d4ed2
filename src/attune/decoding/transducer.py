"""Transducers, greedily: the most probable token each time, for a whole batch at once. RNN-T and TDT.

While a row says nothing its prediction net stands still. So a step joins the next few frames of every row at once,
passes over the blanks among them up to the first label, and moves the prediction net on by that label: a loop over
labels in which no row waits for another. A step has fixed shapes and looks at no value, so that steps can be recorded
as a CUDA graph; on an accelerator only every eighth step waits for the device. Nothing that depends on the batch
enters: a row that has come to its own last frame says nothing more.
"""

# B utterances, R rows still going, W frames looked at in a step, S steps, V tokens, P what a prediction net says
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attune.kernels.cuda_graph import capture_graph
from attune.types import Hypothesis, States, TransducerScorer

MAX_LABELS = 10  # in one frame; a model that says more is caught in a loop
FRAMES_AT_ONCE = 8
STEPS_BETWEEN_LOOKS = 8  # on an accelerator, which a look makes wait; on the CPU each step is looked at
SHARE_TO_LEAVE = 0.25  # fewer ended rows than this are cheaper to carry along

# Labels (R,) and states → what is said of the rows now (R, …), and their new states
Net = Callable[[Tensor, States], tuple[Tensor, States]]


def greedy(scorer: TransducerScorer, max_labels: int = MAX_LABELS, graphed: bool = False) -> list[Hypothesis]:
    """The best token of each frame until that is a blank; scored by that one alignment, blanks and durations included.

    After `max_labels` in a frame the next frame's turn comes. `graphed` records the steps as a CUDA graph, which takes
    a moment for each batch and gives the same result.
    """
    loop = _Loop(scorer, max_labels)
    rows = loop.start()
    has_graph = graphed and len(rows.utterances) > 0
    steps: Callable[[_Rows], tuple[_Rows, _Said]] = _Graph(loop, rows) if has_graph else loop.steps
    scores = torch.zeros(len(scorer.lengths), device=scorer.device)
    said = []
    while len(rows.utterances):
        rows, new = steps(rows)
        said.append(new)
        scores[rows.utterances] = rows.scores
        rows = _still_going(rows, scorer.lengths, may_leave=not graphed)
    return _hypotheses(said, scores.tolist(), scorer.blank)


def steps_between_looks(device: torch.device) -> int:
    """How many steps to take before asking which utterances have ended."""
    return 1 if device.type == "cpu" else STEPS_BETWEEN_LOOKS


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where each row is."""

    utterances: Tensor  # (R,)
    frames: Tensor  # (R,)
    repeats: Tensor  # (R,) labels said in this frame
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
class _Said:
    """What the rows said in some steps; a blank is nothing."""

    utterances: Tensor  # (R,)
    tokens: Tensor  # (S, R)
    frames: Tensor  # (S, R)
    log_probs: Tensor  # (S, R)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The best token of each frame of a window, and how long it takes; (R, W) each."""

    tokens: Tensor  # blank beyond an utterance's last frame
    log_probs: Tensor
    durations: Tensor
    gains: Tensor  # of token and duration

    def at(self, places: Tensor) -> _Seen:
        """The frame at each row's place (R, 1)."""
        return _Seen(*(each.gather(1, places) for each in (self.tokens, self.log_probs, self.durations, self.gains)))


class _Loop:
    """The step that is repeated, and what it needs besides the rows."""

    def __init__(self, scorer: TransducerScorer, max_labels: int) -> None:
        self.scorer, self.max_labels = scorer, max_labels
        self.offsets = torch.arange(FRAMES_AT_ONCE, device=scorer.device)
        self.durations = torch.tensor(scorer.durations or (0,), device=scorer.device)
        self.steps_at_once = steps_between_looks(scorer.device)

    def start(self) -> _Rows:
        """A row for each utterance that has a frame."""
        utterances = self.scorer.lengths.nonzero()[:, 0]
        none = torch.zeros_like(utterances)
        predicted, states = self.scorer.start(len(utterances))
        return _Rows(utterances, none, none, torch.zeros(len(none), device=none.device), predicted, states)

    def steps(self, rows: _Rows) -> tuple[_Rows, _Said]:
        """Some steps without a look at the rows, and what was said in them."""
        found = []
        for _ in range(self.steps_at_once):
            rows, *said = self.step(rows)
            found.append(said)
        tokens, frames, log_probs = (torch.stack(each) for each in zip(*found, strict=True))
        return rows, _Said(rows.utterances, tokens, frames, log_probs)

    def step(self, rows: _Rows) -> tuple[_Rows, Tensor, Tensor, Tensor]:
        """Each row's next label within the window, if there is one, with its frame and log-probability."""
        seen = self._look(rows)
        passed, cost = _pass_blanks(seen, self.scorer.blank)
        at = seen.at(passed.clamp(max=FRAMES_AT_ONCE - 1))
        tokens = at.tokens.masked_fill(passed >= FRAMES_AT_ONCE, self.scorer.blank)[:, 0]
        is_said = tokens != self.scorer.blank
        durations = at.durations[:, 0].masked_fill(~is_said, 0)
        frames = rows.frames + passed[:, 0]

        repeats = rows.repeats.masked_fill(passed[:, 0] > 0, 0) + is_said
        is_full = repeats >= self.max_labels
        next_frames = frames + torch.where(is_full & (durations == 0), 1, durations)
        scores = rows.scores + cost[:, 0] + at.gains[:, 0].masked_fill(~is_said, 0)
        predicted, states = move_on(self.scorer.predict, tokens, self.scorer.blank, rows.predicted, rows.states)
        repeats = repeats.masked_fill(is_full | (durations > 0), 0)
        after = _Rows(rows.utterances, next_frames, repeats, scores, predicted, states)
        return after, tokens, frames, at.log_probs[:, 0]

    def _look(self, rows: _Rows) -> _Seen:
        """Join the next frames of each row with what its prediction net says."""
        last = self.scorer.lengths[rows.utterances, None] - 1
        frames = rows.frames[:, None] + self.offsets  # (R, W)
        is_over = frames > last
        utterances = rows.utterances[:, None].expand_as(frames).flatten()
        predicted = rows.predicted[:, None].expand(*frames.shape, -1).flatten(0, 1)
        tokens, durations = self.scorer.join(utterances, frames.minimum(last).flatten(), predicted)
        log_probs, best = (each.view(frames.shape) for each in tokens.max(1))
        best = best.masked_fill(is_over, self.scorer.blank)
        if not self.scorer.durations:
            return _Seen(best, log_probs, torch.zeros_like(best).masked_fill(is_over, -1), log_probs)
        gains, chosen = (each.view(frames.shape) for each in durations.max(1))
        return _Seen(best, log_probs, self.durations[chosen].masked_fill(is_over, -1), log_probs + gains)


def _pass_blanks(seen: _Seen, blank: int) -> tuple[Tensor, Tensor]:
    """How many frames each row passes over before its first label (R, 1), and the gains of those blanks.

    A blank takes a frame at least. Beyond the last frame, where durations are -1, nothing is passed.
    """
    jumps = seen.durations.clamp(min=1).masked_fill((seen.tokens != blank) | (seen.durations < 0), 0)
    passed, cost = torch.zeros_like(jumps[:, :1]), torch.zeros_like(seen.gains[:, :1])
    for _ in range(FRAMES_AT_ONCE):
        here = passed.clamp(max=FRAMES_AT_ONCE - 1)
        jump = jumps.gather(1, here).masked_fill(passed >= FRAMES_AT_ONCE, 0)
        cost = cost + seen.gains.gather(1, here).masked_fill(jump == 0, 0)
        passed = passed + jump
    return passed, cost


def move_on(net: Net, tokens: Tensor, blank: int, said: Tensor, states: States) -> tuple[Tensor, States]:
    """What a net says once the rows have these tokens (R,), where it `said` this; at a blank it stands still."""
    is_label = tokens != blank
    some_label = 1 if blank == 0 else 0  # it need not know the blank
    new, new_states = net(tokens.masked_fill(~is_label, some_label), states)
    pairs = zip(new_states, states, strict=True)
    return _chosen(is_label, new, said), tuple(_chosen(is_label, after, before) for after, before in pairs)


def _chosen(is_label: Tensor, after: Tensor, before: Tensor) -> Tensor:
    return torch.where(is_label.view(-1, *[1] * (after.dim() - 1)), after, before)


def _still_going(rows: _Rows, lengths: Tensor, may_leave: bool) -> _Rows:
    """The rows without those that have ended, once these are many enough."""
    is_going = rows.frames < lengths[rows.utterances]
    going = int(is_going.sum())
    is_worth_it = may_leave and len(is_going) - going >= SHARE_TO_LEAVE * len(is_going)
    if going and not is_worth_it:
        return rows
    return _Rows.of([each[is_going] for each in rows.tensors()])


class _Graph:
    """Some steps of the loop, recorded once for rows of this shape and then played."""

    def __init__(self, loop: _Loop, rows: _Rows) -> None:
        self.rows = _Rows.of([each.clone() for each in rows.tensors()])
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries set themselves up at the first call, which cannot be recorded
            loop.steps(self.rows)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph, self.said = capture_graph(lambda: self._steps(loop))

    def _steps(self, loop: _Loop) -> _Said:
        after, said = loop.steps(self.rows)
        for old, new in zip(self.rows.tensors(), after.tensors(), strict=True):
            old.copy_(new)
        return said

    def __call__(self, rows: _Rows) -> tuple[_Rows, _Said]:
        """Play the steps; the rows are the ones this graph knows."""
        self.graph.replay()
        said = self.said
        return self.rows, _Said(rows.utterances, said.tokens.clone(), said.frames.clone(), said.log_probs.clone())


def _hypotheses(said: Sequence[_Said], scores: Sequence[float], blank: int) -> list[Hypothesis]:
    """What each utterance's row said, from its first step to its last."""
    labels: list[list[tuple[int, int, float]]] = [[] for _ in scores]
    for part in said:
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
