"""From a corpus on disk, in an archive or at an address to manifests, and from text to a tokenizer."""

import fcntl
import hashlib
import json
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from attune import catalog, config
from attune.corpora import (
    CORPORA,
    REMOVE,
    CorpusPaths,
    Layout,
    Prepared,
    detect_corpus,
    is_archive,
    open_corpus,
    prepare_split,
    remove_splits,
    require_valid_rows,
    unpacked_root,
)
from attune.errors import ConfigError, DataError
from attune.files import completed, write_text
from attune.plain_yaml import Problems, read_overrides
from attune.site import Site
from attune.sources import is_address, is_remote, locate, locate_some, shown, unpack
from attune.text.timestamps import strip_timestamps
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer

RECORD, COMPLETE = "corpus.json", "complete"
AUTO = "auto"  # the corpus is recognized by the files of its source


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """What is to be prepared: a corpus by name, where it is, where its manifests go, and its options."""

    corpus: str
    source: str
    to: Path
    options: Sequence[str] = ()
    force: bool = False  # write again what is there


@dataclass(frozen=True, slots=True)
class Preparing:
    """How far the preparation is: rows of all splits, and about how many there will be, where that is known."""

    split: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Understood:
    """How the source was understood: the corpus that it was taken for, and which column is what."""

    corpus: str
    notes: tuple[str, ...]


def prepare_data(
    source: str, to: Path, site: Site, jobs: int = 1, options: Sequence[str] = ()
) -> Generator[Preparing | Understood, None, tuple[Prepared, ...]]:
    """Manifests of whatever `source` is: a folder, CSV or TSV, HF set, archive or URL; `options` are `key=value`."""
    return prepare_corpus(PrepareRequest(AUTO, source, to, options), jobs, site)


def prepare_corpus(
    order: PrepareRequest, jobs: int, site: Site
) -> Generator[Preparing | Understood, None, tuple[Prepared, ...]]:
    """Write every split of the corpus; yields how the source was understood, and how far it is."""
    to = order.to.absolute()
    if order.corpus != AUTO:  # a mistake is reported before anything is fetched or written
        _options(catalog.find(CORPORA, order.corpus), order.options)
    with _alone_in(to):
        corpus, source = _find(order, to, site)
        layout = catalog.find(CORPORA, corpus)
        options = _options(layout, order.options)
        paths = CorpusPaths(source, to)
        splits = layout.read(paths, options)
        claim = {"corpus": corpus, "from": shown(source), "options": config.to_plain(options)}
        replaces = _claim(to, claim, order.force)
        recognized = [f"{shown(order.source)}: read as {corpus}"] if order.corpus == AUTO else []
        yield Understood(corpus, (*recognized, *(layout.notes(paths, options) if layout.notes else ())))
        total = layout.count(paths, options) if layout.count else None
        prepared: list[Prepared] = []
        for split, found in splits.items():
            begun = Preparing(split, sum(each.rows for each in prepared), total)
            steps = prepare_split(split, found, to, jobs, replaces)
            prepared.append((yield from _progress_of(begun, steps)))
        if any(split.rows for split in prepared):
            if replaces:
                remove_splits(to, splits)
            _record(to, {**claim, COMPLETE: True})
        return tuple(prepared)


def _find(order: PrepareRequest, to: Path, site: Site) -> tuple[str, str]:
    """The corpus and its source on this machine, unpacked; or an address, for a corpus that reads those in place."""
    named = None if order.corpus == AUTO else order.corpus
    if named and catalog.find(CORPORA, named).takes_addresses:
        return named, order.source
    if not named and is_address(order.source) and order.source.partition("#")[0].endswith((".tar", "/")):
        return "shards", order.source
    if not named and order.source.startswith("hf://datasets/"):
        named = "huggingface"
    path = (
        _located(order, catalog.find(CORPORA, named), site) if named else locate(order.source, site.cache)
    ).absolute()
    if is_archive(path):
        path = _unpacked(path, to)
    return named or detect_corpus(path), str(path)


def _located(order: PrepareRequest, layout: Layout, site: Site) -> Path:
    """The source of a known corpus, fetched; of a remote dataset, as much as the options ask for."""
    options = _options(layout, order.options)
    if layout.choose is None or not is_remote(order.source) or order.source.endswith(".parquet"):
        return locate(order.source, site.cache)
    name = f"{order.source}#{hashlib.sha256(json.dumps(config.to_plain(options)).encode()).hexdigest()[:12]}"
    choose = layout.choose
    return locate_some(order.source, lambda names: choose(names, options), site.cache, name)


def _unpacked(archive: Path, to: Path) -> Path:
    """The archive's files beside the manifests, which refer to them; one that changed is unpacked anew."""
    status = archive.stat()
    state = hashlib.sha256(f"{archive} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:12]
    folder = to / f"unpacked-{state}"
    if not folder.exists():
        unpack(archive, folder)
    return unpacked_root(folder)


def _progress_of(begun: Preparing, steps: Generator[int, None, Prepared]) -> Generator[Preparing, None, Prepared]:
    while True:
        try:
            yield replace(begun, done=begun.done + next(steps))
        except StopIteration as end:
            result: Prepared = end.value
            return result


def _options(layout: Layout, words: Sequence[str]) -> Any:
    problems = Problems()
    options = config.parse(read_overrides(words, problems), layout.options, problems)
    problems.raise_all()
    return options


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait for whoever prepares in this folder; a process that dies lets go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise DataError(f"Cannot write manifests to {folder}: {error.strerror}.") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _claim(to: Path, claim: dict[str, Any], force: bool) -> bool:
    """Record what the folder is for; returns whether the manifests in it are to be replaced.

    A folder that is for something else is refused, unless nothing came of that: a mistake can be corrected.
    """
    path = to / RECORD
    before = _read_claim(path, force) if path.exists() else {}
    is_complete = before.pop(COMPLETE, True) and bool(before)
    changed = _differences(before, claim) if before else []
    if changed and is_complete and not force:
        raise ConfigError(
            f"{to} is already prepared with other settings ({', '.join(changed)}). `attune prepare` writes it again "
            f"with --force, or elsewhere with another --to; or remove {to}."
        )
    _record(to, {**claim, COMPLETE: False} if changed or not is_complete else {**claim, COMPLETE: True})
    return force or bool(changed)


def _read_claim(path: Path, force: bool) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and isinstance(found.get("options"), dict):
            return found
    if force:
        return {}
    raise ConfigError(f"{path} is damaged. Prepare again with --force, or elsewhere with another --to.")


def _differences(before: dict[str, Any], claim: dict[str, Any]) -> list[str]:
    """Each setting that is another now: audio: 'audio' → 'Filename'."""
    flat = [{**each, **each["options"]} for each in (before, claim)]
    return [
        f"{key}: {flat[0].get(key)!r} → {value!r}"
        for key, value in flat[1].items()
        if key != "options" and flat[0].get(key) != value
    ]


def _record(to: Path, claim: dict[str, Any]) -> None:
    write_text(to / RECORD, json.dumps(claim, indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True, slots=True)
class TokenizerRequest:
    """What tokens to learn."""

    kind: Literal["bpe", "unigram"]
    size: int
    normalizer: str = "none"


@dataclass(frozen=True, slots=True)
class LearnedTokenizer:
    """What came of it."""

    tokens: int
    texts: int
    per_word: float


def learn_tokens(sources: Sequence[str], file: Path, wish: TokenizerRequest, site: Site) -> LearnedTokenizer:
    """Write a SentencePiece model of the texts that the manifests have."""
    normalize = catalog.find(catalog.NORMALIZERS, wish.normalizer)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = open_corpus("texts", [locate(source, site.cache) for source in sources], Path(scratch))
        require_valid_rows(corpus, "fail", REMOVE)  # a text less is another tokenizer
        written = [(each.text, each.language) for each in corpus if each.text is not None]
        texts = [normalize(strip_timestamps(text, language)) for text, language in written]
    if not texts:
        raise DataError(f"{', '.join(sources)} has no text to train a tokenizer on.")
    pieces = SentencePieceTokenizer.learn(texts, wish.kind, wish.size)
    with completed(file) as partial:
        partial.write_bytes(pieces.model)
    words = sum(len(text.split()) for text in texts)
    return LearnedTokenizer(pieces.size, len(texts), sum(len(pieces.encode(text)) for text in texts) / max(1, words))
