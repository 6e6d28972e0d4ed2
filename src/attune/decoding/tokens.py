"""Token by token: greedy, sampled and beam search over an attention model, which scores the next token.

A hypothesis is scored by the model's log-probability of its tokens and of the end after them; one that reaches its
limit is ended there. Filters forbid tokens and leave the scores alone. The probability mass that they leave is added up
beside the scores: the score less that is the log-probability among the allowed tokens. Nothing that depends on the
batch enters: an utterance is frozen at the position where it ends, however long its rows stay in the buffer. A step
takes some dozen small operations (a beam's some forty) and no wait for the device; on an accelerator every eighth step
has one.
"""

# U utterances, K hypotheses of each, R = U × K rows, N positions, V vocabulary
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.decoding._token_search import HypothesisBuffer, run_search
from attune.decoding.fusion import Fusion, LmRows
from attune.decoding.settings import LengthNorm
from attune.types import CombinedScorer, Hypothesis, TokenScorer

NEVER = -torch.inf
MEAN = LengthNorm(1.0)

# The allowed log-probabilities (R, V), the utterance of each row (R,) and the position → the token of each row (R,)
Choose = Callable[[Tensor, Tensor, int], Tensor]


def greedy(scorer: TokenScorer) -> list[Hypothesis]:
    """The most probable token each time; of equal ones the first."""
    return [
        best for (best,) in run_search(_SingleHypothesis(scorer, lambda allowed, rows, position: allowed.argmax(1)))
    ]


def sample(scorer: TokenScorer, temperature: float, seeds: Sequence[int]) -> list[Hypothesis]:
    """Tokens drawn at a temperature, a function of each utterance's own seed: `derive(seed, "sample", id)`."""
    draws = _draws(scorer, seeds).to(scorer.device)

    def choose(allowed: Tensor, rows: Tensor, position: int) -> Tensor:
        mass = (allowed / temperature).softmax(1).cumsum(1)
        drawn = draws[rows, position, None] * mass[:, -1:]
        # The first token with more mass up to it than was drawn; never one without any.
        return torch.searchsorted(mass, drawn, right=True)[:, 0].clamp(max=mass.shape[1] - 1)

    return [drawn for (drawn,) in run_search(_SingleHypothesis(scorer, choose))]


def beam_search(
    scorer: TokenScorer, beam: int, norm: LengthNorm = MEAN, nbest: int = 1, fusion: Fusion | None = None
) -> list[list[Hypothesis]]:
    """The `nbest` of each utterance, best first, by their scores normalized by length; the end counts as one.

    Of the best 2 × `beam` continuations, the best `beam` that do not end stay active; one that ends counts where it is
    among the best `beam`. An utterance has finished once what has ended cannot be beaten (a power of 0) or, as
    longer ones might always come to a better mean, once `beam` have ended that are no worse than the best active one.
    With a `fusion`, "best" is by the fused score, and hypotheses still have the scorer's own.
    """
    return run_search(_BeamSearch(scorer, beam, norm, nbest, fusion))


def _draws(scorer: TokenScorer, seeds: Sequence[int]) -> Tensor:
    """A number in [0, 1) for each utterance and position."""
    lengths = [len(prefix) + limit + 1 for prefix, limit in zip(scorer.prefixes, scorer.limits, strict=True)]
    rows = [
        torch.rand(length, generator=torch.Generator().manual_seed(seed))
        for seed, length in zip(seeds, lengths, strict=True)
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


class _SingleHypothesis:
    """One row for each utterance, whose next token is chosen once and for all."""

    def __init__(self, scorer: TokenScorer, choose: Choose) -> None:
        self.buffer = HypothesisBuffer(scorer)
        self.choose = choose
        self.rows = torch.arange(len(scorer.prefixes), device=scorer.device)
        self.scores = torch.zeros(len(scorer.prefixes), device=scorer.device)
        self.masses = torch.zeros_like(self.scores)  # what the filters leave of the probability, log
        self.ended = torch.zeros_like(self.rows, dtype=torch.bool)

    def step(self, log_probs: Tensor) -> None:
        buffer, position = self.buffer, self.buffer.position
        counts = (buffer.begins <= position) & ~self.ended
        is_free = counts & (position < buffer.stops)
        allowed = buffer.filtered(log_probs)
        chosen = self.choose(allowed, self.rows, position)
        tokens = torch.where(is_free, chosen, buffer.tokens[:, position])
        gains = log_probs.gather(1, tokens[:, None])[:, 0]
        mass = torch.where(is_free, _log_mass(allowed, chosen), gains)  # at its limit, a row has no choice
        self.scores = self.scores + gains.masked_fill(~counts, 0)
        self.masses = self.masses + mass.masked_fill(~counts, 0)
        self.ended = self.ended | (counts & (tokens == buffer.scorer.end))
        buffer.tokens[:, position] = tokens

    def finished(self) -> Tensor:
        return self.ended

    def hypotheses(self, indices: Sequence[int]) -> list[list[Hypothesis]]:
        sums = torch.stack([self.scores, self.masses], 1)[indices].tolist()
        rows = zip(indices, self.buffer.tokens[indices].tolist(), sums, strict=True)
        return [[_hypothesis(self.buffer.emitted(index, tokens), *own)] for index, tokens, own in rows]

    def prune(self, kept: Sequence[int]) -> None:
        rows = self.buffer.prune(kept)
        self.rows, self.scores, self.masses = self.rows[rows], self.scores[rows], self.masses[rows]
        self.ended = self.ended[rows]


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The best continuations of an utterance's hypotheses, best first, (U, 2K) each."""

    ranks: Tensor
    scores: Tensor
    parts: Tensor  # (U, 2K, P)
    parents: Tensor
    tokens: Tensor
    gaps: Tensor  # how far each is below the best of its row


class _BeamSearch:
    """K active rows for each utterance, best first, and its K best hypotheses that have ended; -inf means none.

    `ranks` is what the active ones are ranked by. `scores`, the scorer's own part of it, is kept up only with a fusion.
    """

    def __init__(self, scorer: TokenScorer, beam: int, norm: LengthNorm, nbest: int, fusion: Fusion | None) -> None:
        self.buffer = HypothesisBuffer(scorer, beam)
        self.norm, self.nbest, self.fusion = norm, nbest, fusion
        self.lm: LmRows | None = fusion.start(len(self.buffer.tokens)) if fusion else None
        self.ranks = torch.full((len(scorer.prefixes), beam), NEVER, device=scorer.device)
        self.ended_ranks = self.ranks.clone()  # by length
        self.ended_tokens = self._emitted()  # (U, K, N)
        # What the filters leave of the probability, log
        self.masses, self.ended_masses = torch.zeros_like(self.ranks), torch.zeros_like(self.ranks)
        self.scores, self.ended_scores = torch.zeros_like(self.ranks), torch.zeros_like(self.ranks)
        # What the scores consist of, of a scorer that says so; known with its first log-probabilities
        self.names: tuple[str, ...] = ()
        self.parts = self.ended_parts = self.ranks.new_zeros(*self.ranks.shape, 0)  # (U, K, P)
        self.ranks[:, 0] = 0

    def step(self, log_probs: Tensor) -> None:
        buffer, beam = self.buffer, self.buffer.beam
        allowed = self._by_utterance(self._allowed(log_probs))  # (U, K, V)
        masses = self.masses + allowed.logsumexp(2)
        found = self._candidates(allowed)
        is_end = found.tokens == buffer.scorer.end
        begins = self._by_utterance(buffer.begins)[:, :1]
        is_forced = buffer.position < begins
        lengths = self.norm.divisor((buffer.position + 1 - begins).clamp(min=1))
        ended = found.ranks.masked_fill(~is_end | is_forced, NEVER)[:, :beam] / lengths
        self._end(ended, found, masses)

        # A row has one end among its continuations, so there are always enough others.
        ranks, best = found.ranks.masked_fill(is_end, NEVER).topk(beam)
        ranks = ranks.masked_fill(self._cannot_win(ranks[:, :1] / lengths), NEVER)
        self.ranks = torch.where(is_forced, self.ranks, ranks)
        self._continue(found, best, masses, is_forced)

    def _candidates(self, allowed: Tensor) -> _Candidates:
        ranks, places = (self.ranks[..., None] + self._fused(allowed)).flatten(1).topk(2 * self.buffer.beam)
        scores = ranks if self.lm is None else (self.scores[..., None] + allowed).flatten(1).gather(1, places)
        parents, tokens = places // allowed.shape[2], places % allowed.shape[2]
        gaps = ranks
        if self.lm:
            gaps = allowed.amax(2).gather(1, parents) - allowed.flatten(1).gather(1, places)
        return _Candidates(ranks, scores, self._parts_of(parents, tokens), parents, tokens, gaps)

    def _parts_of(self, parents: Tensor, tokens: Tensor) -> Tensor:
        """What the scores of continuations consist of (U, 2K, P)."""
        scorer = self.buffer.scorer
        if not isinstance(scorer, CombinedScorer):
            return _picked(self.parts, parents)
        if not self.names:
            self.names = tuple(scorer.parts)
            self.parts = self.ended_parts = self.ranks.new_zeros(*self.ranks.shape, len(self.names))
        rows = self.buffer.beam * torch.arange(len(parents), device=parents.device)[:, None] + parents
        # One that is the same for all tokens has a single column.
        own = [part[rows, tokens.clamp(max=part.shape[1] - 1)] for part in scorer.parts.values()]
        return _picked(self.parts, parents) + torch.stack(own, 2)

    def _continue(self, found: _Candidates, best: Tensor, masses: Tensor, is_forced: Tensor) -> None:
        """Write the next token of the best candidates (U, K); a row that is still in its prompt follows that."""
        buffer = self.buffer
        forced = self._by_utterance(buffer.tokens)[..., buffer.position]
        own = torch.arange(buffer.beam, device=best.device)
        parents = torch.where(is_forced, own, found.parents.gather(1, best))
        self.masses = torch.where(is_forced, self.masses, masses.gather(1, parents))
        self.parts = torch.where(is_forced[..., None], self.parts, _picked(found.parts, best))
        rows = buffer.reorder(parents)
        emitted = torch.where(is_forced, forced, found.tokens.gather(1, best)).flatten()
        buffer.tokens[:, buffer.position] = emitted
        if self.fusion and self.lm:
            self.scores = torch.where(is_forced, self.scores, found.scores.gather(1, best))
            gaps = found.gaps.gather(1, best).flatten()
            self.lm = self.fusion.advance(self.lm.select(rows), emitted, buffer.begins <= buffer.position, gaps)

    def finished(self) -> Tensor:
        return self.ranks[:, 0] == NEVER

    def hypotheses(self, indices: Sequence[int]) -> list[list[Hypothesis]]:
        sums = torch.stack([self.ended_ranks, self.ended_scores, self.ended_masses], 2)
        ended = torch.cat([sums, self.ended_parts], 2)
        tokens = self.ended_tokens[indices, : self.nbest].tolist()
        rows = zip(indices, ended[indices, : self.nbest].tolist(), tokens, strict=True)
        return [self._hypotheses(*each) for each in rows]

    def prune(self, kept: Sequence[int]) -> None:
        rows = self.buffer.prune(kept)
        self.ranks, self.ended_ranks, self.ended_scores = (
            each[kept] for each in (self.ranks, self.ended_ranks, self.ended_scores)
        )
        self.ended_tokens = self.ended_tokens[kept]
        self.masses, self.ended_masses = self.masses[kept], self.ended_masses[kept]
        self.parts, self.ended_parts = self.parts[kept], self.ended_parts[kept]
        if self.lm:
            self.scores, self.lm = self.scores[kept], self.lm.select(rows)

    def _allowed(self, log_probs: Tensor) -> Tensor:
        """What the filters allow, and at the limit the end alone."""
        buffer, end = self.buffer, self.buffer.scorer.end
        is_last = buffer.stops == buffer.position
        allowed = buffer.filtered(log_probs).masked_fill(is_last[:, None], NEVER)
        allowed[:, end] = torch.where(is_last, log_probs[:, end], allowed[:, end])
        return allowed

    def _fused(self, allowed: Tensor) -> Tensor:
        """The allowed log-probabilities (U, K, V) with the gains of what is fused."""
        if self.fusion is None or self.lm is None:
            return allowed
        return allowed + self._by_utterance(self.fusion.gains(self.lm, allowed.flatten(0, 1)))

    def _end(self, ranks: Tensor, found: _Candidates, masses: Tensor) -> None:
        """Count the first candidates among what has ended, by these ranks (U, K), and remember the best."""
        beam = ranks.shape[1]
        parents = found.parents[:, :beam]
        tokens = torch.cat([self.ended_tokens, _picked(self._emitted(), parents)], 1)
        self.ended_ranks, best = torch.cat([self.ended_ranks, ranks], 1).topk(beam)
        self.ended_scores = torch.cat([self.ended_scores, found.scores[:, :beam]], 1).gather(1, best)
        self.ended_masses = torch.cat([self.ended_masses, masses.gather(1, parents)], 1).gather(1, best)
        self.ended_parts = _picked(torch.cat([self.ended_parts, found.parts[:, :beam]], 1), best)
        self.ended_tokens = F.pad(_picked(tokens, best), (0, 1), value=self.buffer.scorer.end)

    def _hypotheses(self, index: int, ended: list[list[float]], tokens: list[list[int]]) -> list[Hypothesis]:
        found = [(own, row) for own, row in zip(ended, tokens, strict=True) if own[0] != NEVER]
        return [self._ended(self.buffer.emitted(index, row), *own) for own, row in found]

    def _ended(self, tokens: tuple[int, ...], rank: float, score: float, mass: float, *sums: float) -> Hypothesis:
        """A hypothesis with what its rank consists of, but for the length."""
        parts = tuple(zip(self.names, sums, strict=True))
        if self.fusion:
            fused = rank * self.norm.divisor(len(tokens) + 1) - score
            parts = (*(parts or (("acoustic", score),)), ("fused", fused))
        return replace(_hypothesis(tokens, score, mass), parts=parts)

    def _cannot_win(self, best: Tensor) -> Tensor:
        # A phrase may still come: only without any do ranks fall with every token.
        may_rise = self.norm.power > 0 or (self.fusion is not None and self.fusion.phrases is not None)
        rank = self.buffer.beam if may_rise else self.nbest
        return self.ended_ranks[:, rank - 1 : rank] >= best

    def _emitted(self) -> Tensor:
        return self._by_utterance(self.buffer.tokens)[..., : self.buffer.position]

    def _by_utterance(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.buffer.beam, *rows.shape[1:])


def _hypothesis(tokens: tuple[int, ...], score: float, mass: float) -> Hypothesis:
    return Hypothesis(tokens, score, filtered_log_prob=score - mass)


def _log_mass(allowed: Tensor, chosen: Tensor) -> Tensor:
    """The log of the sum of probabilities (R,), by way of a token of each row: several times as fast as logsumexp."""
    column = chosen[:, None]
    return (allowed.gather(1, column) - allowed.log_softmax(1).gather(1, column))[:, 0]


def _picked(tokens: Tensor, places: Tensor) -> Tensor:
    """The rows (U, K, N) at these places (U, K)."""
    return tokens.gather(1, places[..., None].expand(-1, -1, tokens.shape[2]))
