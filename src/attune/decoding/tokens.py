"""Token by token: greedy, sampled and beam search over a model that scores what comes next.

A hypothesis is scored by the model's log-probability of its tokens and of the end after them; one that has come to its
limit is ended there. Filters forbid tokens and leave the scores alone. What they leave of the probability is added up
beside the scores: the score less that is how sure the model was among what it could say. Nothing that depends on the
batch enters: an utterance is frozen in the column where it ends, however long its rows stay on the page. A column takes
some dozen small operations (a beam's some forty) and no wait for the device; on an accelerator every eighth column has
one.
"""

# U utterances, K hypotheses of each, R = U × K rows, N columns, V vocabulary
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.decoding._page import HypothesisBuffer, run_search
from attune.types import Hypothesis, TokenScorer

NEVER = -torch.inf

# The allowed log-probabilities (R, V), the utterance of each row (R,) and the column → the token of each row (R,)
Choose = Callable[[Tensor, Tensor, int], Tensor]


def greedy(scorer: TokenScorer) -> list[Hypothesis]:
    """The most probable token each time; of equal ones the first."""
    return [best for (best,) in run_search(_OneByOne(scorer, lambda allowed, rows, column: allowed.argmax(1)))]


def sample(scorer: TokenScorer, temperature: float, seeds: Sequence[int]) -> list[Hypothesis]:
    """Tokens drawn at a temperature, a function of each utterance's own seed: `derive(seed, "sample", id)`."""
    draws = _draws(scorer, seeds).to(scorer.device)

    def choose(allowed: Tensor, rows: Tensor, column: int) -> Tensor:
        mass = (allowed / temperature).softmax(1).cumsum(1)
        drawn = draws[rows, column, None] * mass[:, -1:]
        # The first token with more mass up to it than was drawn; never one without any.
        return torch.searchsorted(mass, drawn, right=True)[:, 0].clamp(max=mass.shape[1] - 1)

    return [drawn for (drawn,) in run_search(_OneByOne(scorer, choose))]


def beam_search(scorer: TokenScorer, beam: int, length_power: float = 1.0, wanted: int = 1) -> list[list[Hypothesis]]:
    """The best `wanted` of each utterance, best first, by score / length ** `length_power`; the end counts as one.

    Of the best 2 × `beam` continuations, the best `beam` that do not end go on; one that ends counts where it is among
    the best `beam`. An utterance is over once what has ended cannot be beaten (`length_power` 0) or, as longer ones
    might always come to a better mean, once `beam` have ended that are no worse than the best still going.
    """
    return run_search(_Beams(scorer, beam, length_power, wanted))


def _draws(scorer: TokenScorer, seeds: Sequence[int]) -> Tensor:
    """A number in [0, 1) for each utterance and column."""
    lengths = [len(prefix) + limit + 1 for prefix, limit in zip(scorer.prefixes, scorer.limits, strict=True)]
    rows = [
        torch.rand(length, generator=torch.Generator().manual_seed(seed))
        for seed, length in zip(seeds, lengths, strict=True)
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


class _OneByOne:
    """One row for each utterance, whose next token is chosen once and for all."""

    def __init__(self, scorer: TokenScorer, choose: Choose) -> None:
        self.page = HypothesisBuffer(scorer)
        self.choose = choose
        self.rows = torch.arange(len(scorer.prefixes), device=scorer.device)
        self.scores = torch.zeros(len(scorer.prefixes), device=scorer.device)
        self.left = torch.zeros_like(self.scores)  # by the filters, log
        self.ended = torch.zeros_like(self.rows, dtype=torch.bool)

    def fill(self, log_probs: Tensor) -> None:
        page, column = self.page, self.page.column
        counts = (page.begins <= column) & ~self.ended
        is_free = counts & (column < page.stops)
        allowed = page.allowed(log_probs)
        chosen = self.choose(allowed, self.rows, column)
        tokens = torch.where(is_free, chosen, page.tokens[:, column])
        gains = log_probs.gather(1, tokens[:, None])[:, 0]
        left = torch.where(is_free, allowed.logsumexp(1), gains)  # at its limit, a row has no choice
        self.scores = self.scores + gains.masked_fill(~counts, 0)
        self.left = self.left + left.masked_fill(~counts, 0)
        self.ended = self.ended | (counts & (tokens == page.scorer.end))
        page.tokens[:, column] = tokens

    def is_over(self) -> Tensor:
        return self.ended

    def found(self, places: Sequence[int]) -> list[list[Hypothesis]]:
        sums = torch.stack([self.scores, self.left], 1)[places].tolist()
        rows = zip(places, self.page.tokens[places].tolist(), sums, strict=True)
        return [[_hypothesis(self.page.result(place, tokens), *own)] for place, tokens, own in rows]

    def keep(self, places: Sequence[int]) -> None:
        rows = self.page.keep(places)
        self.rows, self.scores, self.left = self.rows[rows], self.scores[rows], self.left[rows]
        self.ended = self.ended[rows]


class _Beams:
    """K rows for each utterance, best first, and its K best hypotheses that have ended; a score of -inf means none."""

    def __init__(self, scorer: TokenScorer, beam: int, length_power: float, wanted: int) -> None:
        self.page = HypothesisBuffer(scorer, copies=beam)
        self.length_power, self.wanted = length_power, wanted
        self.scores = torch.full((len(scorer.prefixes), beam), NEVER, device=scorer.device)
        self.ended = self.ended_values = self.scores.clone()  # scores, and what these are by length
        self.ended_tokens = self._written()  # (U, K, N)
        self.left, self.ended_left = torch.zeros_like(self.scores), torch.zeros_like(self.scores)  # by filters, log
        self.scores[:, 0] = 0

    def fill(self, log_probs: Tensor) -> None:
        page, beam = self.page, self.page.copies
        allowed = self._by_utterance(self._allowed(log_probs))  # (U, K, V)
        left = self.left + allowed.logsumexp(2)
        continued = self.scores[..., None] + allowed
        scores, places = continued.flatten(1).topk(2 * beam)
        parents, tokens = places // log_probs.shape[1], places % log_probs.shape[1]
        is_end = tokens == page.scorer.end
        begins = self._by_utterance(page.begins)[:, :1]
        is_dictated = page.column < begins
        lengths = (page.column + 1 - begins).clamp(min=1) ** self.length_power
        self._end(scores.masked_fill(~is_end | is_dictated, NEVER)[:, :beam], left, parents[:, :beam], lengths)

        # A row has one end among its continuations, so there are always enough others.
        scores, best = scores.masked_fill(is_end, NEVER).topk(beam)
        scores = scores.masked_fill(self._cannot_win(scores[:, :1] / lengths), NEVER)
        self.scores = torch.where(is_dictated, self.scores, scores)
        dictated = self._by_utterance(page.tokens)[..., page.column]
        own = torch.arange(beam, device=scores.device)
        parents = torch.where(is_dictated, own, parents.gather(1, best))
        self.left = torch.where(is_dictated, self.left, left.gather(1, parents))
        page.inherit(parents)
        page.tokens[:, page.column] = torch.where(is_dictated, dictated, tokens.gather(1, best)).flatten()

    def is_over(self) -> Tensor:
        return self.scores[:, 0] == NEVER

    def found(self, places: Sequence[int]) -> list[list[Hypothesis]]:
        sums = torch.stack([self.ended, self.ended_left], 2)[places, : self.wanted].tolist()
        tokens = self.ended_tokens[places, : self.wanted].tolist()
        return [self._hypotheses(*each) for each in zip(places, sums, tokens, strict=True)]

    def keep(self, places: Sequence[int]) -> None:
        self.page.keep(places)
        self.scores, self.ended, self.ended_values = self.scores[places], self.ended[places], self.ended_values[places]
        self.ended_tokens = self.ended_tokens[places]
        self.left, self.ended_left = self.left[places], self.ended_left[places]

    def _allowed(self, log_probs: Tensor) -> Tensor:
        """What the filters allow, and at the limit the end alone."""
        page, end = self.page, self.page.scorer.end
        is_last = page.stops == page.column
        allowed = page.allowed(log_probs).masked_fill(is_last[:, None], NEVER)
        allowed[:, end] = torch.where(is_last, log_probs[:, end], allowed[:, end])
        return allowed

    def _end(self, scores: Tensor, left: Tensor, parents: Tensor, lengths: Tensor) -> None:
        """Count these (U, K) among what has ended, and remember the best."""
        tokens = torch.cat([self.ended_tokens, _picked(self._written(), parents)], 1)
        self.ended_values, best = torch.cat([self.ended_values, scores / lengths], 1).topk(scores.shape[1])
        self.ended = torch.cat([self.ended, scores], 1).gather(1, best)
        self.ended_left = torch.cat([self.ended_left, left.gather(1, parents)], 1).gather(1, best)
        self.ended_tokens = F.pad(_picked(tokens, best), (0, 1), value=self.page.scorer.end)

    def _hypotheses(self, place: int, sums: list[list[float]], tokens: list[list[int]]) -> list[Hypothesis]:
        ended = [(own, row) for own, row in zip(sums, tokens, strict=True) if own[0] != NEVER]
        return [_hypothesis(self.page.result(place, row), *own) for own, row in ended]

    def _cannot_win(self, best: Tensor) -> Tensor:
        rank = self.wanted if self.length_power == 0 else self.page.copies
        return self.ended_values[:, rank - 1 : rank] >= best

    def _written(self) -> Tensor:
        return self._by_utterance(self.page.tokens)[..., : self.page.column]

    def _by_utterance(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.page.copies, *rows.shape[1:])


def _hypothesis(tokens: tuple[int, ...], score: float, left: float) -> Hypothesis:
    return Hypothesis(tokens, score, filtered_log_prob=score - left)


def _picked(tokens: Tensor, places: Tensor) -> Tensor:
    """The rows (U, K, N) at these places (U, K)."""
    return tokens.gather(1, places[..., None].expand(-1, -1, tokens.shape[2]))
