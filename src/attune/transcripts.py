"""What a model found in a recording: texts with their times, or whatever its task predicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from attune.types import Features, Json, TextSegment, Waveform, Word


@dataclass(frozen=True, slots=True)
class NBestEntry:
    """One of the texts that a beam found, its log-probability, and what each part of the search added to its rank."""

    text: str
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)  # acoustic, lm, phrases …


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text of a recording, its segments, its words with their times where the model has them, the n-best list.

    Segments are what was decoded at once, or what lies between predicted timestamps. The language is given or
    detected, of models that detect languages.
    """

    text: str
    words: tuple[Word, ...] = ()
    nbest: tuple[NBestEntry, ...] = ()
    segments: tuple[TextSegment, ...] = ()
    language: str | None = None

    def shifted(self, seconds: float) -> Transcript:
        """The transcript of a part of a recording that begins at so many seconds, with times of the whole."""
        return replace(
            self,
            words=tuple(replace(each, start=each.start + seconds, end=each.end + seconds) for each in self.words),
            segments=tuple(replace(each, start=each.start + seconds, end=each.end + seconds) for each in self.segments),
        )


@dataclass(frozen=True, slots=True)
class PredictedValue:
    """What a model predicts for a recording, as its task writes it; audio and frames are instead of a value."""

    value: Json
    score: float | None = None  # of the search, mostly a log-probability
    probability: float | None = None  # of a label
    waveform: Waveform | None = None
    features: Features | None = None
    language: str | None = None
