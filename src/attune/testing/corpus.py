"""Does a corpus keep what training and evaluation rely on? Prepared for real, every recording decoded."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from attune.corpora import CorpusPaths, Layout, Manifest, inspect_audio, open_manifest, prepare_split
from attune.errors import AttuneError
from attune.files import sha256
from attune.testing.problems import require_none
from attune.types import Utterance


def check_corpus(corpus: Layout, source: Path | str, options: Any = None) -> None:
    """Raise CheckFailed with every promise that the corpus breaks: prepare it, open it, decode all of it."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        prepared = _prepared(corpus, source, options, first)
        again = _prepared(corpus, source, options, second)
        splits = {name: manifest for name, manifest in prepared.items() if manifest is not None}
        problems = [
            *_empty(prepared),
            *_same(first, second, prepared.keys() & again.keys()),
            *_sound(splits),
            *_apart(splits, corpus.speakers_apart),
        ]
    require_none("The corpus", problems)


def _prepared(corpus: Layout, source: Path | str, options: Any, to: Path) -> dict[str, Manifest | None]:
    splits: dict[str, Manifest | None] = {}
    place = CorpusPaths(str(source), to)
    for name, found in corpus.read(place, options or corpus.options()).items():
        steps = prepare_split(name, found, to, jobs=1)
        for _ in steps:
            pass
        manifest = to / f"{name}.jsonl"
        splits[name] = open_manifest(manifest, to / "index") if manifest.stat().st_size else None
    return splits


def _same(first: Path, second: Path, splits: Iterable[str]) -> Iterator[str]:
    for name in splits:
        if sha256(first / f"{name}.jsonl") != sha256(second / f"{name}.jsonl"):
            yield f"{name}: preparing it twice gives different rows"


def _empty(splits: Mapping[str, Manifest | None]) -> Iterator[str]:
    if not splits:
        yield "splits: none"
    for name, manifest in splits.items():
        if manifest is None:
            yield f"{name}: it has no rows"


def _sound(splits: Mapping[str, Manifest]) -> Iterator[str]:
    for name, manifest in splits.items():
        for problem in manifest.problems:
            yield f"{problem.where}: {problem.reason}"
        for utterance in manifest:
            try:
                wrong = inspect_audio(utterance) if utterance.audio else None
            except AttuneError as error:
                wrong = str(error)
            if wrong:
                yield f"{name}, {utterance.id!r}: {wrong}"


def _apart(splits: Mapping[str, Manifest], speakers_apart: bool) -> Iterator[str]:
    for one, other in combinations(splits, 2):
        yield from _shared("id", one, other, *({each.id for each in splits[name]} for name in (one, other)))
        yield from _shared("audio", one, other, *({_audio(each) for each in splits[name]} for name in (one, other)))
        if speakers_apart:
            both = [{each.speaker for each in splits[name]} - {None} for name in (one, other)]
            yield from _shared("speaker", one, other, *both)


def _audio(utterance: Utterance) -> tuple[object, ...]:
    return utterance.audio, utterance.first_byte, utterance.row, utterance.start, utterance.channel


def _shared(what: str, one: str, other: str, these: set[Any], those: set[Any]) -> Iterator[str]:
    both = these & those - {(None,) * 5}
    if both:
        yield f"{one} and {other} share {len(both)} {what}s, such as {sorted(map(str, both))[0]}"
