"""What may not be said next: rules that a token-by-token search applies at each step, in the order given.

A rule writes -inf and never scales: what remains keeps the model's own log-probability.
"""

# R rows, N tokens so far, V vocabulary
import torch
import torch.nn.functional as F
from torch import Tensor

from attune.types import LogitFilter

NEVER = -torch.inf


def suppress(unwanted: Tensor) -> LogitFilter:
    """Never say one of these tokens."""

    def forbid(log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        return log_probs.index_fill(1, unwanted, NEVER)

    return forbid


def suppress_first(unwanted: Tensor) -> LogitFilter:
    """Do not begin with one of these tokens."""

    def forbid(log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        is_first = (begins == tokens.shape[1])[:, None]
        return torch.where(is_first, log_probs.index_fill(1, unwanted, NEVER), log_probs)

    return forbid


def pair_timestamps(first: int, end: int, latest_start: int) -> LogitFilter:
    """OpenAI's rules for timestamps, which are the tokens from `first` on; text is below `end`.

    The result begins with one, at most `latest_start` steps after zero. They come in pairs around text, never go back,
    and one is due as soon as all of them together are more probable than any single other token.
    """

    def forbid(log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        ids = torch.arange(log_probs.shape[1], device=log_probs.device)
        is_time, is_text = ids >= first, ids < end  # (V,)
        said = begins[:, None] <= torch.arange(tokens.shape[1], device=tokens.device)
        was_time = F.pad(said & (tokens >= first), (1, 0))  # (R, 1 + N): there always is a last but one
        is_open = was_time[:, -1] & ~was_time[:, -2] & (tokens.shape[1] - begins >= 2)  # one of a pair is said
        is_paired = was_time[:, -1] & ~is_open
        latest = (tokens * was_time[:, 1:]).amax(1)  # times only rise; 0 before the first
        soonest = latest + (~is_open).long()  # a pair says the same time twice, a stretch of text takes some

        forbidden = is_time & (ids < soonest[:, None])
        forbidden |= is_time & is_paired[:, None]
        forbidden |= is_text & is_open[:, None]
        is_first = (begins == tokens.shape[1])[:, None]
        forbidden |= is_first & (~is_time | (ids > first + latest_start))
        log_probs = log_probs.masked_fill(forbidden, NEVER)
        is_due = log_probs[:, first:].logsumexp(1) > log_probs[:, :first].amax(1)
        return log_probs.masked_fill(is_due[:, None] & ~is_time, NEVER)

    return forbid
