"""Transcripts with speakers: each word goes to whom a diarizing model finds active most of its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import ascii_uppercase

from attune.recognizer import Transcript
from attune.serve.answers import usage
from attune.serve.uploads import Upload
from attune.types import Json, Word

JoinTexts = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class SpeakerTurn:
    """A stretch of one speaker, in seconds; those of several speakers may overlap."""

    start: float
    end: float
    speaker: str


def turns_of(predicted: Json) -> list[SpeakerTurn]:
    """What a diarizing model predicts for a recording."""
    rows = predicted["segments"] if isinstance(predicted, Mapping) else []
    return [SpeakerTurn(**row) for row in rows]  # type: ignore[arg-type, union-attr]


def diarized(upload: Upload, found: Transcript, turns: Sequence[SpeakerTurn], join: JoinTexts) -> dict[str, object]:
    """OpenAI's diarized_json: a segment for each run of words of one speaker; who speaks first is A."""
    letters: dict[str, str] = {}
    segments: list[dict[str, object]] = []
    for speaker, words in _runs(found.words, turns):
        letter = letters.setdefault(speaker, ascii_uppercase[len(letters)])
        segments.append(
            {
                "type": "transcript.text.segment",
                "id": f"seg_{len(segments)}",
                "start": words[0].start,
                "end": words[-1].end,
                "speaker": letter,
                "text": join([word.text for word in words]),
            }
        )
    seconds = round(upload.seconds, 3)
    whole = {"task": "transcribe", "duration": seconds, "text": found.text, "segments": segments}
    return {**whole, "usage": usage(upload.seconds)}


def _runs(words: Sequence[Word], turns: Sequence[SpeakerTurn]) -> Iterator[tuple[str, list[Word]]]:
    for speaker, run in groupby(words, lambda word: _speaker(word, turns)):
        yield speaker, list(run)


def _speaker(word: Word, turns: Sequence[SpeakerTurn]) -> str:
    """Whose turn has most of a word or, between turns, is the nearest; with no turn at all there is one speaker."""
    shared = (min(word.end, turn.end) - max(word.start, turn.start) for turn in turns)  # negative: how far away
    best = max(zip(shared, turns, strict=True), key=lambda each: each[0], default=None)
    return best[1].speaker if best else ""
