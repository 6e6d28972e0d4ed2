"""What a scorer has about each utterance, so that the outputs of two batches can be compared."""

import torch
from torch import Tensor

from attune.decoding import tokens, transducer
from attune.scorers import (
    ActivityScorer,
    CtcScorer,
    EmbeddingScorer,
    FeatureScorer,
    LabelScorer,
    LikelihoodScorer,
    Scorer,
    TransducerScorer,
    WaveformScorer,
)


def outputs_of(scorer: Scorer) -> list[Tensor]:
    """What the scorer has about each utterance, cut to the utterance's own length."""
    match scorer:
        case LabelScorer() | LikelihoodScorer():
            return list(scorer.log_probs)
        case EmbeddingScorer():
            return list(scorer.vectors)
        case CtcScorer():
            return _own(scorer.log_probs, scorer.lengths)
        case FeatureScorer():
            return _own(scorer.frames, scorer.lengths)
        case ActivityScorer():
            return _own(scorer.log_odds, scorer.lengths)
        case WaveformScorer():
            return [row[..., :length] for row, length in zip(scorer.audio, scorer.lengths.tolist(), strict=True)]
    hypotheses = transducer.greedy(scorer) if isinstance(scorer, TransducerScorer) else tokens.greedy(scorer)
    # Other tokens have another score; numbers of tokens are no quantities that a tolerance could compare.
    return [torch.tensor([float(len(found.tokens)), found.score]) for found in hypotheses]


def _own(frames: Tensor, lengths: Tensor) -> list[Tensor]:
    return [row[:length] for row, length in zip(frames, lengths.tolist(), strict=True)]
