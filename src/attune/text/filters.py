"""Logit filters: rules that a token-by-token search applies at each step, in the order given.

A filter sets log-probabilities to -inf and never scales: the others stay as the model computed them.
"""

# R rows, N tokens so far, V vocabulary
import torch
import torch.nn.functional as F
from torch import Tensor

from attune.types import LogitFilter

NEVER = -torch.inf


def suppress(unwanted: Tensor) -> LogitFilter:
    """Never emit one of these tokens."""

    def forbid(log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        return log_probs.index_fill(1, unwanted, NEVER)

    return forbid


def suppress_first(unwanted: Tensor) -> LogitFilter:
    """Do not emit one of these tokens first."""

    def forbid(log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        is_first = (begins == tokens.shape[1])[:, None]
        return torch.where(is_first, log_probs.index_fill(1, unwanted, NEVER), log_probs)

    return forbid


def pair_timestamps(first: int, end: int, latest_start: int) -> LogitFilter:
    """OpenAI's rules for timestamps, which are the tokens from `first` on; text is below `end`.

    The result begins with one, at most `latest_start` steps after zero. They come in pairs around text, never decrease,
    and one must follow as soon as all of them together are more probable than any single other token.
    """

    def forbid(log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        ids = torch.arange(log_probs.shape[1], device=log_probs.device)
        is_timestamp, is_text = ids >= first, ids < end  # (V,)
        is_emitted = begins[:, None] <= torch.arange(tokens.shape[1], device=tokens.device)
        was_timestamp = F.pad(is_emitted & (tokens >= first), (1, 0))  # (R, 1 + N): there always is a last but one
        # The first of a pair is emitted, the second is not yet.
        is_open = was_timestamp[:, -1] & ~was_timestamp[:, -2] & (tokens.shape[1] - begins >= 2)
        is_paired = was_timestamp[:, -1] & ~is_open
        latest = (tokens * was_timestamp[:, 1:]).amax(1)  # timestamps only increase; 0 before the first
        earliest = latest + (~is_open).long()  # a pair may be the same timestamp twice, text takes some time

        forbidden = is_timestamp & (ids < earliest[:, None])
        forbidden |= is_timestamp & is_paired[:, None]
        forbidden |= is_text & is_open[:, None]
        is_first = (begins == tokens.shape[1])[:, None]
        forbidden |= is_first & (~is_timestamp | (ids > first + latest_start))
        log_probs = log_probs.masked_fill(forbidden, NEVER)
        must_follow = log_probs[:, first:].logsumexp(1) > log_probs[:, :first].amax(1)
        return log_probs.masked_fill(must_follow[:, None] & ~is_timestamp, NEVER)

    return forbid
