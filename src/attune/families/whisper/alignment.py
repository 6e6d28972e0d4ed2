"""The time of each token, by the attention to the audio: OpenAI's method, by dynamic time warping.

The scores of the heads that follow the speech are normalized over the audio, standardized over the tokens, smoothed and
averaged; the cheapest monotonic path through them has the frame at which attention moves on to each token.
"""

# A heads, U tokens, F frames
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attune.families.whisper.features import HOP
from attune.families.whisper.scorer import DecodingRules, WhisperScorer
from attune.types import Batch, Hypothesis

SMOOTHED = 7  # frames
SAMPLES_PER_FRAME = 2 * HOP
DIAGONAL, UP, LEFT = range(3)


def align_tokens(
    scorer: WhisperScorer, rules: DecodingRules, batch: Batch, found: Sequence[Hypothesis]
) -> list[Hypothesis]:
    """The hypotheses with a frame and a probability for each of their tokens."""
    # Without the end, for which a text as long as the decoder has positions leaves no room.
    sequences = [[*prefix, *each.tokens] for prefix, each in zip(scorer.prefixes, found, strict=True)]
    width = max(map(len, sequences))
    tokens = torch.tensor([row + [rules.end] * (width - len(row)) for row in sequences], device=scorer.device)
    logits, scores = scorer.decoder.trace(tokens, scorer.encoded, scorer.mask)
    probabilities = logits[:, :-1].float().softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]  # (B, U - 1)
    heads = rules.alignment_heads or _later_heads(scores)
    aligned = []
    for row, (hypothesis, prefix, length) in enumerate(
        zip(found, scorer.prefixes, batch.lengths.tolist(), strict=True)
    ):
        own = slice(len(prefix) - 1, len(prefix) + len(hypothesis.tokens) - 1)
        attention = torch.stack([scores[layer][row, head] for layer, head in heads])
        frames = max(1, min(attention.shape[2], -(-length // SAMPLES_PER_FRAME)))
        costs = -_followed(attention[:, : len(sequences[row]), :frames])[len(prefix) - 1 :]
        *starts, end = token_frames(costs.double().cpu().numpy())  # the last is when the text ends
        ends = (*starts[1:], end) if starts else ()
        chances = tuple(probabilities[row, own].tolist())
        aligned.append(replace(hypothesis, frames=tuple(starts), confidences=chances, ends=ends))
    return aligned


def _later_heads(scores: Sequence[Tensor]) -> list[tuple[int, int]]:
    """The heads of the later half of the layers, where it is not known which follow the speech."""
    heads = scores[0].shape[1]
    return [(layer, head) for layer in range(len(scores) // 2, len(scores)) for head in range(heads)]


def _followed(scores: Tensor) -> Tensor:
    """How much each token (U, F) looks at each frame, of scores (A, U, F)."""
    weights = scores.softmax(-1)
    deviation, mean = torch.std_mean(weights, dim=1, keepdim=True, correction=0)
    weights = (weights - mean) / deviation.clamp(min=1e-12)
    reach = SMOOTHED // 2
    if weights.shape[2] > reach:
        padded = F.pad(weights, (reach, reach), mode="reflect")
        weights = padded.unfold(2, SMOOTHED, 1).median(-1).values
    return weights.mean(0)


def token_frames(costs: NDArray[np.float64]) -> list[int]:
    """The frame at which the cheapest monotonic path through the costs (U, F) reaches each token."""
    tokens, frames = costs.shape
    total = np.full((tokens + 1, frames + 1), np.inf)
    total[0, 0] = 0.0
    steps = np.full((tokens + 1, frames + 1), LEFT, np.int8)
    steps[:, 0] = UP
    for token in range(1, tokens + 1):
        for frame in range(1, frames + 1):
            ways = (total[token - 1, frame - 1], total[token - 1, frame], total[token, frame - 1])
            # Of equal ways OpenAI's code goes left, then up.
            best = DIAGONAL if ways[0] < min(ways[1:]) else UP if ways[1] < min(ways[0], ways[2]) else LEFT
            total[token, frame] = costs[token - 1, frame - 1] + ways[best]
            steps[token, frame] = best
    starts = [0] * tokens
    token, frame = tokens, frames
    while token > 0 and frame > 0:
        starts[token - 1] = frame - 1  # going back, the last written is the first frame
        step = steps[token, frame]
        token, frame = token - (step != LEFT), frame - (step != UP)
    return starts
