"""What needs no search: vectors, frame activities, audio and likelihoods, each utterance's own part of the batch."""

from attune.types import (
    Activity,
    ActivityScorer,
    Embedding,
    EmbeddingScorer,
    Features,
    FeatureScorer,
    Likelihood,
    LikelihoodScorer,
    Waveform,
    WaveformScorer,
)


def embeddings(scorer: EmbeddingScorer) -> list[Embedding]:
    """The vector of each utterance."""
    return [Embedding(tuple(vector)) for vector in scorer.vectors.tolist()]


def features(scorer: FeatureScorer) -> list[Features]:
    """The frames of each utterance up to its own length."""
    frames = scorer.frames.detach().float().cpu().numpy()
    return [Features(row[:length]) for row, length in zip(frames, scorer.lengths.tolist(), strict=True)]


def activities(scorer: ActivityScorer) -> list[Activity]:
    """The probabilities of each utterance's own frames."""
    frames = scorer.log_odds.detach().float().sigmoid().cpu().numpy()
    return [
        Activity(row[:length], scorer.seconds_per_frame)
        for row, length in zip(frames, scorer.lengths.tolist(), strict=True)
    ]


def waveforms(scorer: WaveformScorer) -> list[Waveform]:
    """The samples of each utterance up to its own length."""
    audio = scorer.audio.detach().float().cpu().numpy()
    return [Waveform(row[..., :length]) for row, length in zip(audio, scorer.lengths.tolist(), strict=True)]


def likelihoods(scorer: LikelihoodScorer) -> list[Likelihood]:
    """The log-probability of each utterance's text."""
    pairs = zip(scorer.log_probs.tolist(), scorer.counts.tolist(), strict=True)
    return [Likelihood(log_prob, int(count)) for log_prob, count in pairs]
