"""QUESST 2014: audio queries to find in recordings; SUPERB takes the part in non-native English.

Which query is in which document is written beside the manifests: lines of `QUERY DOCUMENT` in dev-matches.txt and
test-matches.txt. Evaluate on a split and on documents together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, find_files, first_existing, read_fields
from attune.corpora._rows import Row
from attune.files import write_text

SETS = {"dev": "dev", "test": "eval"}  # by our name: the corpus's
LEXEME = 9  # fields of a line of an RTTM file: LEXEME document channel start duration query …


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which language."""

    language: Annotated[str, Field(description="The language key of the corpus; `all` for every one.")] = "nnenglish"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The queries of each split, and the documents in which both look: evaluate on dev and documents together."""
    root = first_existing(corpus, "scoring", "quesst14Database/scoring").parent
    corpus.to.mkdir(parents=True, exist_ok=True)
    for split, own in SETS.items():
        matches = _matches(root / "scoring" / f"groundtruth_quesst14_{own}")
        write_text(corpus.to / f"{split}-matches.txt", "".join(f"{query} {name}\n" for query, name in matches))
    queries = {split: _queries(root, own, options.language) for split, own in SETS.items()}
    return {**queries, "documents": _documents(root, options.language)}


def _queries(root: Path, own: str, language: str) -> Iterator[RowOrSkipped]:
    for path in _listed(root, f"language_key_{own}.lst", language):
        yield Row(path.stem, str(path), labels={"role": "query"})


def _documents(root: Path, language: str) -> Iterator[RowOrSkipped]:
    for path in _listed(root, "language_key_utterances.lst", language):
        yield Row(path.stem, str(path), labels={"role": "document"})


def _listed(root: Path, name: str, language: str) -> Iterator[Path]:
    """The recordings of a language; the list names them with the folder that the corpus was packed in."""
    for listed, own in read_fields(root / "scoring" / name):
        if language in ("all", own.strip()) and ".." not in Path(listed).parts:
            yield root / Path(listed).relative_to(Path(listed).parts[0])


def _matches(folder: Path) -> list[tuple[str, str]]:
    """Each query with each document that contains it."""
    lines = (line for rttm in find_files(folder, ".rttm") for line in read_fields(rttm, LEXEME))
    return sorted({(query, document) for kind, document, _, _, _, query, *_ in lines if kind == "LEXEME"})


CORPUS = Layout(read, Options)
