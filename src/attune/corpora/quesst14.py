"""QUESST 2014: spoken queries to be found in recordings; SUPERB takes the part in non-native English.

A query's row has the label `documents`: the ids of the recordings that contain it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, find_files, first_existing, read_fields
from attune.corpora._rows import Row

SETS = {"dev": "dev", "test": "eval"}  # by our name: the corpus's
LEXEME = 9  # fields of a line of an RTTM file: LEXEME document channel start duration query …


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which language."""

    language: Annotated[str, Field(description="The language key of the corpus; `all` for every one.")] = "nnenglish"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The queries of each split, and the documents in which both look: evaluate on dev and documents together."""
    root = first_existing(corpus, "scoring", "quesst14Database/scoring").parent
    queries = {split: _queries(root, own, options.language) for split, own in SETS.items()}
    return {**queries, "documents": _documents(root, options.language)}


def _queries(root: Path, own: str, language: str) -> Iterator[RowOrSkipped]:
    found = _documents_by_query(root / "scoring" / f"groundtruth_quesst14_{own}")
    for path in _listed(root, f"language_key_{own}.lst", language):
        documents = {"documents": " ".join(found[path.stem])} if path.stem in found else {}
        yield Row(path.stem, str(path), labels={"role": "query", **documents})


def _documents(root: Path, language: str) -> Iterator[RowOrSkipped]:
    for path in _listed(root, "language_key_utterances.lst", language):
        yield Row(path.stem, str(path), labels={"role": "document"})


def _listed(root: Path, name: str, language: str) -> Iterator[Path]:
    """The recordings of a language; the list names them with the folder that the corpus was packed in."""
    for listed, own in read_fields(root / "scoring" / name):
        if language in ("all", own.strip()) and ".." not in Path(listed).parts:
            yield root / Path(listed).relative_to(Path(listed).parts[0])


def _documents_by_query(folder: Path) -> dict[str, list[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for rttm in find_files(folder, ".rttm"):
        for kind, document, _, _, _, query, *_ in read_fields(rttm, LEXEME):
            if kind == "LEXEME":
                found[query].add(document)
    return {query: sorted(documents) for query, documents in found.items()}


CORPUS = Layout(read, Options)
