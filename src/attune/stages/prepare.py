"""Make manifests of a corpus: once per node however many ask, finished splits kept, the rest gone on with."""

import fcntl
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attune import catalog, config
from attune.corpora import CorpusPaths, Layout, Prepared, prepare_split
from attune.errors import ConfigError, DataError
from attune.files import write_text
from attune.plain_yaml import Problems, read_overrides
from attune.site import Site
from attune.sources import locate, shown

RECORD = "corpus.json"


@dataclass(frozen=True, slots=True)
class Order:
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


def prepare_corpus(order: Order, jobs: int, site: Site) -> Generator[Preparing, None, tuple[Prepared, ...]]:
    """Write every split of the corpus; yields how far it is."""
    layout: Layout = catalog.find(catalog.CORPORA, order.corpus)
    options = _options(layout, order.options)
    source = order.source if layout.takes_addresses else str(locate(order.source, site.cache).absolute())
    to = order.to.absolute()
    with _alone_in(to):
        splits = layout.read(CorpusPaths(source, to), options)
        _claim(to, {"corpus": order.corpus, "from": shown(source), "options": config.to_plain(options)})
        prepared = []
        for split, found in splits.items():
            steps = prepare_split(split, found, to, jobs)
            prepared.append((yield from _told(split, steps)))
        return tuple(prepared)


def _told(split: str, steps: Generator[int, None, Prepared]) -> Generator[Preparing, None, Prepared]:
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
        raise DataError(f"Manifests cannot be written to {folder}: {error.strerror}.") from error
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
