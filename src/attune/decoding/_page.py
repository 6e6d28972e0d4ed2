"""The page that a token-by-token search writes on: a row for each hypothesis, and every row at the same column.

A row that is still dictated by its own, longer prefix writes that, the others what was found. So nothing is padded or
shifted, and one position holds for all rows, which is what a static cache and a CUDA graph need. Every column still to
come holds the end, so a row that has come to its limit is dictated that.
"""

# U utterances, K hypotheses of each, R = U × K rows, N columns, V vocabulary
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from attune.types import Hypothesis, TokenScorer

COLUMNS_BETWEEN_LOOKS = 8  # on an accelerator, which a look makes wait; on the CPU each column is looked at
ROWS_TO_CARRY = 32  # on an accelerator, which takes no less time for fewer


class HypothesisBuffer:
    """What the rows have written and must write, and whose rows they are."""

    def __init__(self, scorer: TokenScorer, copies: int = 1) -> None:
        begins = [len(prefix) for prefix in scorer.prefixes]
        stops = [begin + limit for begin, limit in zip(begins, scorer.limits, strict=True)]
        tokens = torch.full((len(begins), max(stops) + 1), scorer.end)
        for row, prefix in zip(tokens, scorer.prefixes, strict=True):
            row[: len(prefix)] = torch.tensor(prefix)
        self.scorer = scorer
        self.copies = copies
        self.column = self.first = min(begins)
        self.utterances = list(range(len(begins)))
        self.last_columns = stops  # by utterance
        self.tokens = self._for_rows(tokens)  # (R, N)
        self.begins = self._for_rows(torch.tensor(begins))  # (R,) where the result begins
        self.stops = self._for_rows(torch.tensor(stops))  # (R,) where it ends at the latest

    def open(self) -> Tensor:
        """Read the columns that every prefix fills, and give each utterance its rows."""
        log_probs = self.scorer.advance(self.tokens[:: self.copies, : self.first])
        if self.copies == 1:
            return log_probs
        rows = self._for_rows(torch.arange(len(self.utterances)))
        log_probs = log_probs[rows]
        self.scorer.select(rows)
        return log_probs

    def allowed(self, log_probs: Tensor) -> Tensor:
        """The log-probabilities (R, V) without what the filters forbid in this column."""
        for forbid in self.scorer.filters:
            log_probs = forbid(log_probs, self.tokens[:, : self.column], self.begins)
        return log_probs

    def turn(self) -> Tensor:
        """Read the column just filled: the log-probabilities of the next."""
        return self.scorer.advance(self.tokens[:, self.column - 1 : self.column])

    def is_full(self) -> bool:
        """Whether every row has come to its end, at the latest by its limit."""
        return self.column > max(self.last_columns[utterance] for utterance in self.utterances)

    def is_time_to_look(self) -> bool:
        """Whether to ask the device which utterances have ended."""
        columns = 1 if self.scorer.device.type == "cpu" else COLUMNS_BETWEEN_LOOKS
        return (self.column - self.first) % columns == 0

    def is_worth_leaving(self) -> bool:
        """Whether fewer rows would take less time."""
        return self.scorer.device.type == "cpu" or len(self.tokens) > ROWS_TO_CARRY

    def inherit(self, parents: Tensor) -> None:
        """Let every row go on from another one of its utterance, by number (U, K)."""
        firsts = torch.arange(len(parents), device=parents.device)[:, None] * self.copies
        rows = (firsts + parents).flatten()
        self.scorer.select(rows)
        self.tokens[:, : self.column] = self.tokens[rows, : self.column]

    def keep(self, places: Sequence[int]) -> Tensor:
        """Let the other utterances go; returns the kept rows."""
        rows = (torch.tensor(places)[:, None] * self.copies + torch.arange(self.copies)).flatten()
        rows = rows.to(self.scorer.device)
        self.utterances = [self.utterances[place] for place in places]
        self.scorer.select(rows)
        self.tokens, self.begins, self.stops = self.tokens[rows], self.begins[rows], self.stops[rows]
        return rows

    def result(self, place: int, row: list[int]) -> tuple[int, ...]:
        """What a row of the utterance at this place says, between its prefix and its end."""
        said = row[len(self.scorer.prefixes[self.utterances[place]]) :]
        return tuple(said[: said.index(self.scorer.end)])

    def _for_rows(self, values: Tensor) -> Tensor:
        return values.repeat_interleave(self.copies, 0).to(self.scorer.device)


class SearchStrategy(Protocol):
    """A way to search: what to write in a column."""

    page: HypothesisBuffer

    def fill(self, log_probs: Tensor) -> None:
        """Write the page's next column; an utterance that has ended must not change any more."""

    def is_over(self) -> Tensor:
        """Which utterances have ended (U,)."""

    def found(self, places: Sequence[int]) -> list[list[Hypothesis]]:
        """The hypotheses of the utterances at these places, best first."""

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these utterances only."""


def run_search(writer: SearchStrategy) -> list[list[Hypothesis]]:
    """Fill column after column until every utterance has ended; those that have leave when it pays."""
    page = writer.page
    results: dict[int, list[Hypothesis]] = {}
    log_probs = page.open()
    while True:
        writer.fill(log_probs)
        page.column += 1
        if leaving := _leaving(writer):
            results |= zip((page.utterances[place] for place in leaving), writer.found(leaving), strict=True)
            if len(leaving) == len(page.utterances):
                return [results[utterance] for utterance in sorted(results)]
            writer.keep([place for place in range(len(page.utterances)) if place not in leaving])
        log_probs = page.turn()


def _leaving(writer: SearchStrategy) -> list[int]:
    """The places of the utterances to let go now."""
    page = writer.page
    if page.is_full():
        return list(range(len(page.utterances)))
    if not page.is_time_to_look():
        return []
    ended = [place for place, is_over in enumerate(writer.is_over().tolist()) if is_over]
    if len(ended) == len(page.utterances):
        return ended
    # Half at a time: to let go means to copy the cache, and on a GPU every number of rows is planned for anew.
    half = len(page.utterances) // 2
    return ended[:half] if half and len(ended) >= half and page.is_worth_leaving() else []
