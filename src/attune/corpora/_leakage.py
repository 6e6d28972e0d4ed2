"""What dev and test share with the training set, and so would score too well: ids, recordings, speakers.

Recordings are compared by content, whatever their names: by size first, then by a few bytes, and only those that still
agree by the hash of all bytes. Of very large sets a sample is looked at; ids are compared for all rows.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from attune.corpora._manifest import Corpus
from attune.corpora._sample import CorpusSample
from attune.corpora._scan import file_state
from attune.errors import SourceError
from attune.sources import read_range
from attune.types import Utterance

MOST_ROWS = 200_000  # of a set whose recordings and speakers are compared
GLANCE = 4096  # bytes
EXAMPLES = 3

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Leak:
    """Something that an evaluation set shares with the training set."""

    split: str
    what: Literal["ids", "recordings", "speakers"]
    shared: int
    total: int  # of the evaluation set
    examples: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(self.examples) + (" …" if self.shared > len(self.examples) else "")
        return f"{self.split} shares {self.shared:,} of {self.total:,} {self.what} with train: {named}"


def find_leaks(train: Corpus, others: Mapping[str, Corpus | CorpusSample]) -> tuple[Leak, ...]:
    """Everything that each of the other sets shares with the training set."""
    return tuple(leak for name, other in others.items() if len(other) for leak in _leaks(name, train, other))


def _leaks(split: str, train: Corpus, other: Corpus | CorpusSample) -> Iterator[Leak]:
    whole = other.whole if isinstance(other, CorpusSample) else other
    rows = np.flatnonzero(np.isin(whole.hashes, train.hashes))
    if len(rows):
        yield Leak(split, "ids", len(rows), len(whole), tuple(whole[int(row)].id for row in rows[:EXAMPLES]))
    scored = list(_some(whole))
    shared = _same_recordings(train, scored)
    if shared:
        yield Leak(split, "recordings", len(shared), len(scored), tuple(each.id for each in shared[:EXAMPLES]))
    speakers = {each.speaker for each in scored if each.speaker}
    both = sorted(speakers & {each.speaker for each in _some(train) if each.speaker}) if speakers else []
    if both:
        yield Leak(split, "speakers", len(both), len(speakers), tuple(both[:EXAMPLES]))


def _some(corpus: Corpus) -> Iterable[Utterance]:
    """All rows, or as many from all over."""
    if len(corpus) <= MOST_ROWS:
        return corpus
    return (corpus[len(corpus) * number // MOST_ROWS] for number in range(MOST_ROWS))


def _same_recordings(train: Corpus, scored: Iterable[Utterance]) -> list[Utterance]:
    """The scored utterances whose recordings, or the same parts of them, are trained on."""
    sized = [(each, size) for each in scored if (size := _size(each)) is not None]
    sizes = {size for _, size in sized}
    trained = [each for each in _some(train) if _size(each) in sizes]
    if not trained:
        return []
    glances: dict[Key, list[Utterance]] = {}
    for each in trained:
        glances.setdefault((_size(each), _part(each), _glance(each)), []).append(each)
    hash_once = cache(_hash)
    found = []
    for each, size in sized:
        alike = glances.get((size, _part(each), _glance(each)), ())
        if any(hash_once(*_place(each)) == hash_once(*_place(other)) for other in alike):
            found.append(each)
    return found


def _place(utterance: Utterance) -> tuple[str, int | None, int | None, int | None]:
    """Where a recording is."""
    return str(utterance.audio), utterance.first_byte, utterance.byte_count, utterance.row


def _part(utterance: Utterance) -> Key:
    """Which part of its recording an utterance is."""
    seconds = None if utterance.start is None else round(utterance.seconds, 2)
    return utterance.start, seconds, utterance.channel


def _size(utterance: Utterance) -> int | None:
    """The bytes of a recording; of one that would have to be requested, or decoded from Parquet, its place instead."""
    if utterance.audio is None:
        return None
    if utterance.row is not None or isinstance(utterance.audio, str):
        return -1
    return utterance.byte_count or file_state(str(utterance.audio)).size


def _glance(utterance: Utterance) -> Key:
    """A few bytes from the middle of a recording, where headers are over; or its place."""
    size = _size(utterance)
    if size is None or size < 0:
        return _place(utterance)
    start = (utterance.first_byte or 0) + size // 2
    return (_read(str(utterance.audio), start, min(GLANCE, size - size // 2)),)


def _hash(audio: str, first_byte: int | None, byte_count: int | None, row: int | None) -> object:
    if row is not None or not Path(audio).is_file():
        return audio, first_byte, row
    content = _read(audio, first_byte or 0, byte_count or Path(audio).stat().st_size)
    return hashlib.blake2b(content).digest() if content else (audio, first_byte)


def _read(audio: str, start: int, length: int) -> bytes:
    try:
        return read_range(audio, start, length)
    except (OSError, SourceError):  # a file that cannot be read is reported by whoever decodes it
        return b""
