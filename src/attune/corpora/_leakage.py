"""What dev and test share with the training set, and so would score too well: ids, recordings, speakers.

Recordings are compared by content, whatever their names: by size first, then by a few bytes, and only those that still
agree by the hash of all bytes. Of very large sets a sample is looked at; ids are compared for all rows.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from attune.corpora._manifest import Corpus
from attune.corpora._sample import CorpusSample
from attune.corpora._scan import file_state
from attune.types import Utterance

MOST_ROWS = 100_000  # of a set whose recordings and speakers are compared
GLANCE = 4096  # bytes
EXAMPLES = 3

Key = tuple[object, ...]
Place = tuple[str, int | None, int | None, int | None]  # path or address, first byte, number of bytes, row of Parquet


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
    wholes = {name: each.whole if isinstance(each, CorpusSample) else each for name, each in others.items()}
    scored = {name: list(_some(whole)) for name, whole in wholes.items() if len(whole)}
    seen = _look_at(train, {_size(each) for rows in scored.values() for each in rows})
    found = (leak for name, rows in scored.items() for leak in _leaks(name, train, wholes[name], rows, seen))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The speakers of the training set, and the places of recordings that may be scored too, by what they look like."""

    speakers: Set[str | None]
    places: Mapping[Key, Sequence[Place]]


def _look_at(train: Corpus, sizes: Set[int | None]) -> _Seen:
    """One pass over the training set; recordings of a size that no scored one has are not opened."""
    speakers, places = set[str | None](), dict[Key, list[Place]]()
    for each in _some(train):
        speakers.add(each.speaker)
        size = _size(each)
        if size is not None and size in sizes:
            places.setdefault(_look(each, size), []).append(_place(each))
    return _Seen(speakers, places)


def _leaks(split: str, train: Corpus, whole: Corpus, scored: Sequence[Utterance], seen: _Seen) -> Iterator[Leak]:
    rows = np.flatnonzero(np.isin(whole.hashes, train.hashes))
    if len(rows):
        yield Leak(split, "ids", len(rows), len(whole), tuple(whole[int(row)].id for row in rows[:EXAMPLES]))
    shared = [each.id for each in scored if _is_trained_on(each, seen)]
    if shared:
        yield Leak(split, "recordings", len(shared), len(scored), tuple(shared[:EXAMPLES]))
    speakers = {each.speaker for each in scored if each.speaker}
    both = sorted(name for name in speakers if name in seen.speakers)
    if both:
        yield Leak(split, "speakers", len(both), len(speakers), tuple(both[:EXAMPLES]))


def _some(corpus: Corpus) -> Iterable[Utterance]:
    """All rows, or as many from all over."""
    if len(corpus) <= MOST_ROWS:
        return corpus
    return (corpus[len(corpus) * number // MOST_ROWS] for number in range(MOST_ROWS))


def _is_trained_on(utterance: Utterance, seen: _Seen) -> bool:
    """Whether the recording, or the same part of it, is in the training set."""
    size = _size(utterance)
    alike = seen.places.get(_look(utterance, size), ()) if size is not None else ()
    own = _place(utterance)
    return any(own == other or _same_bytes(own, other) for other in alike)


def _place(utterance: Utterance) -> Place:
    """Where a recording is."""
    return str(utterance.audio), utterance.first_byte, utterance.byte_count, utterance.row


def _size(utterance: Utterance) -> int | None:
    """The bytes of a recording; -1 for one that would have to be requested, or decoded from Parquet."""
    if utterance.audio is None:
        return None
    if utterance.row is not None or isinstance(utterance.audio, str):
        return -1
    return utterance.byte_count or file_state(str(utterance.audio)).size


def _look(utterance: Utterance, size: int) -> Key:
    """What equal recordings have in common: part, size and a few bytes; or the place, where those cannot be read."""
    seconds = None if utterance.start is None else round(utterance.seconds, 2)
    part = utterance.start, seconds, utterance.channel
    if size < 0:
        return part, _place(utterance)
    middle = (utterance.first_byte or 0) + size // 2  # where headers are over
    return part, size, _read(str(utterance.audio), middle, min(GLANCE, size - size // 2))


def _same_bytes(one: Place, other: Place) -> bool:
    """Whether two recordings on this machine have the same content."""
    hashes = [_hash(place) for place in (one, other) if place[3] is None and Path(place[0]).is_file()]
    return len(hashes) == 2 and hashes[0] == hashes[1]


def _hash(place: Place) -> bytes:
    audio, first_byte, byte_count, _ = place
    return hashlib.blake2b(_read(audio, first_byte or 0, byte_count or Path(audio).stat().st_size)).digest()


def _read(audio: str, start: int, length: int) -> bytes:
    try:
        with Path(audio).open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(length)
    except OSError:  # a file that cannot be read is reported by whoever decodes it
        return b""
