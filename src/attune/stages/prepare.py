"""From a corpus on disk to manifests, and from text to a tokenizer."""

import fcntl
import json
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attune import catalog, config
from attune.corpora import CORPORA, CorpusPaths, Layout, Prepared, open_corpus, prepare_split
from attune.errors import ConfigError, DataError
from attune.files import completed, write_text
from attune.plain_yaml import Problems, read_overrides
from attune.site import Site
from attune.sources import locate, shown
from attune.text.timestamps import strip_timestamps
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer

RECORD = "corpus.json"


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """What is to be prepared: a corpus by name, where it is, where its manifests go, and its options."""

    corpus: str
    source: str
    to: Path
    options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Preparing:
    """How far a split has come."""

    split: str
    rows: int


def prepare_corpus(order: PrepareRequest, jobs: int, site: Site) -> Generator[Preparing, None, tuple[Prepared, ...]]:
    """Write every split of the corpus; yields how far it is."""
    layout = catalog.find(CORPORA, order.corpus)
    options = _options(layout, order.options)
    source = order.source if layout.takes_addresses else str(locate(order.source, site.cache).absolute())
    to = order.to.absolute()
    with _alone_in(to):
        splits = layout.read(CorpusPaths(source, to), options)
        _claim(to, {"corpus": order.corpus, "from": shown(source), "options": config.to_plain(options)})
        prepared = []
        for split, found in splits.items():
            steps = prepare_split(split, found, to, jobs)
            prepared.append((yield from _progress_of(split, steps)))
        return tuple(prepared)


def _progress_of(split: str, steps: Generator[int, None, Prepared]) -> Generator[Preparing, None, Prepared]:
    while True:
        try:
            yield Preparing(split, next(steps))
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


def _claim(to: Path, claim: dict[str, Any]) -> None:
    """Say what the folder is for; refuse one that is for something else."""
    record = to / RECORD
    if not record.exists():
        write_text(record, json.dumps(claim, indent=1, ensure_ascii=False) + "\n")
        return
    before = json.loads(record.read_text(encoding="utf-8"))
    changed = [f"  {key}: {before.get(key)} there, {claim[key]} here" for key in claim if before.get(key) != claim[key]]
    if changed:
        raise ConfigError("\n".join([f"{to} holds manifests made otherwise:", *changed, "Give another --to."]))


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
        written = [(each.text, each.language) for each in corpus if each.text is not None]
        texts = [normalize(strip_timestamps(text, language)) for text, language in written]
    if not texts:
        raise DataError(f"{', '.join(sources)} has no text to train a tokenizer on.")
    pieces = SentencePieceTokenizer.learn(texts, wish.kind, wish.size)
    with completed(file) as partial:
        partial.write_bytes(pieces.model)
    words = sum(len(text.split()) for text in texts)
    return LearnedTokenizer(pieces.size, len(texts), sum(len(pieces.encode(text)) for text in texts) / max(1, words))
