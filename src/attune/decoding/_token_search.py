"""The loop of a token-by-token search: a buffer with a row for each hypothesis, and every row at the same position.

A row whose own prompt is longer than others' is forced to follow it, while the others emit what was found. So nothing
is padded or shifted, and one position holds for all rows, which is what a static cache and a CUDA graph need. Every
position still to come holds the end token, so a row that has reached its limit is forced to end.
"""

# U active utterances, K hypotheses of each, R = U × K rows, N positions, V vocabulary
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from attune.types import Hypothesis, TokenScorer

STEPS_BETWEEN_SYNCS = 8  # on an accelerator, which has to wait for one; on the CPU there is one at each step
ROWS_TO_KEEP = 32  # on an accelerator, which takes no less time for fewer


class HypothesisBuffer:
    """The tokens that the rows have emitted and must emit, and whose rows they are."""

    def __init__(self, scorer: TokenScorer, beam: int = 1) -> None:
        begins = [len(prefix) for prefix in scorer.prefixes]
        stops = [begin + limit for begin, limit in zip(begins, scorer.limits, strict=True)]
        tokens = torch.full((len(begins), max(stops) + 1), scorer.end)
        for row, prefix in zip(tokens, scorer.prefixes, strict=True):
            row[: len(prefix)] = torch.tensor(prefix)
        self.scorer = scorer
        self.beam = beam
        self.position = self.first = min(begins)
        self.utterances = list(range(len(begins)))  # the active ones
        self.last_positions = stops  # by utterance
        self.tokens = self._for_rows(tokens)  # (R, N)
        self.begins = self._for_rows(torch.tensor(begins))  # (R,) where the prompt ends and the result begins
        self.stops = self._for_rows(torch.tensor(stops))  # (R,) where it ends at the latest

    def start(self) -> Tensor:
        """Feed what every prompt has in common in length, and expand each utterance to its rows."""
        log_probs = self.scorer.advance(self.tokens[:: self.beam, : self.first])
        if self.beam == 1:
            return log_probs
        rows = self._for_rows(torch.arange(len(self.utterances)))
        log_probs = log_probs[rows]
        self.scorer.select(rows)
        return log_probs

    def filtered(self, log_probs: Tensor) -> Tensor:
        """The log-probabilities (R, V) with -inf for what the filters forbid at this position."""
        for forbid in self.scorer.filters:
            log_probs = forbid(log_probs, self.tokens[:, : self.position], self.begins)
        return log_probs

    def advance(self) -> Tensor:
        """Feed the tokens just written: the log-probabilities of the next."""
        return self.scorer.advance(self.tokens[:, self.position - 1 : self.position])

    def is_exhausted(self) -> bool:
        """Whether every row has ended, at the latest by its limit."""
        return self.position > max(self.last_positions[utterance] for utterance in self.utterances)

    def is_sync_step(self) -> bool:
        """Whether to ask the device which utterances have finished."""
        steps = 1 if self.scorer.device.type == "cpu" else STEPS_BETWEEN_SYNCS
        return (self.position - self.first) % steps == 0

    def is_worth_pruning(self) -> bool:
        """Whether fewer rows would take less time."""
        return self.scorer.device.type == "cpu" or len(self.tokens) > ROWS_TO_KEEP

    def reorder(self, parents: Tensor) -> Tensor:
        """Let every row continue from another one of its utterance, by number (U, K); returns their rows (R,)."""
        firsts = torch.arange(len(parents), device=parents.device)[:, None] * self.beam
        rows = (firsts + parents).flatten()
        self.scorer.select(rows)
        self.tokens[:, : self.position] = self.tokens[rows, : self.position]
        return rows

    def prune(self, kept: Sequence[int]) -> Tensor:
        """Drop all but the active utterances at these indices; returns the rows that are kept."""
        rows = (torch.tensor(kept)[:, None] * self.beam + torch.arange(self.beam)).flatten()
        rows = rows.to(self.scorer.device)
        self.utterances = [self.utterances[index] for index in kept]
        self.scorer.select(rows)
        self.tokens, self.begins, self.stops = self.tokens[rows], self.begins[rows], self.stops[rows]
        return rows

    def emitted(self, index: int, row: list[int]) -> tuple[int, ...]:
        """The tokens of a row of the active utterance at this index, between its prompt and its end."""
        tokens = row[len(self.scorer.prefixes[self.utterances[index]]) :]
        return tuple(tokens[: tokens.index(self.scorer.end)])

    def _for_rows(self, values: Tensor) -> Tensor:
        return values.repeat_interleave(self.beam, 0).to(self.scorer.device)


class SearchStrategy(Protocol):
    """A way to search: which tokens to emit at a position."""

    buffer: HypothesisBuffer

    def step(self, log_probs: Tensor) -> None:
        """Write the buffer's next position; an utterance that has finished must not change any more."""

    def finished(self) -> Tensor:
        """Which active utterances have finished (U,)."""

    def hypotheses(self, indices: Sequence[int]) -> list[list[Hypothesis]]:
        """The hypotheses of the active utterances at these indices, best first."""

    def prune(self, kept: Sequence[int]) -> None:
        """Drop all but the active utterances at these indices."""


def run_search(strategy: SearchStrategy) -> list[list[Hypothesis]]:
    """Step until every utterance has finished; the rows of those that have are dropped when it pays."""
    buffer = strategy.buffer
    results: dict[int, list[Hypothesis]] = {}
    log_probs = buffer.start()
    while True:
        strategy.step(log_probs)
        buffer.position += 1
        if done := _to_drop(strategy):
            results |= zip((buffer.utterances[index] for index in done), strategy.hypotheses(done), strict=True)
            if len(done) == len(buffer.utterances):
                return [results[utterance] for utterance in sorted(results)]
            strategy.prune([index for index in range(len(buffer.utterances)) if index not in done])
        log_probs = buffer.advance()


def _to_drop(strategy: SearchStrategy) -> list[int]:
    """The indices of the active utterances to drop now."""
    buffer = strategy.buffer
    if buffer.is_exhausted():
        return list(range(len(buffer.utterances)))
    if not buffer.is_sync_step():
        return []
    finished = [index for index, is_finished in enumerate(strategy.finished().tolist()) if is_finished]
    if len(finished) == len(buffer.utterances):
        return finished
    # Half at a time: dropping rows copies the cache, and on a GPU every number of rows is planned for anew.
    half = len(buffer.utterances) // 2
    return finished[:half] if half and len(finished) >= half and buffer.is_worth_pruning() else []
