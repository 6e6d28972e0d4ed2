"""VCC 2020: voice conversion. Training has one target speaker; test has others, with the same sentence of the target.

Expects a folder of recordings for each speaker (SEF1 …, TEF1 …) and, if it is there, prompts/Eng_transcriptions.txt.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, find_files, first_existing, read_fields
from attune.corpora._rows import Row

SOURCES = ("SEF1", "SEF2", "SEM1", "SEM2")
DEV = frozenset(f"E1{number:04d}" for number in range(61, 71))
TEST = frozenset(f"E3{number:04d}" for number in range(1, 26))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Whose voice."""

    target: Annotated[Literal["TEF1", "TEF2", "TEM1", "TEM2"], Field(description="The speaker to convert to.")] = "TEF1"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """Train and dev are the target speaker's recordings; test is those of the four sources, 25 sentences each."""
    target = first_existing(corpus, options.target)
    prompts = corpus.folder / "prompts" / "Eng_transcriptions.txt"
    texts = {name: text.strip() for name, text in read_fields(prompts)} if prompts.is_file() else {}
    own = [path for path in find_files(target, ".wav") if path.stem not in TEST]
    return {
        "train": (_row(path, texts) for path in own if path.stem not in DEV),
        "dev": (_row(path, texts, path) for path in own if path.stem in DEV),
        "test": _sources(corpus.folder, target, texts),
    }


def _sources(root: Path, target: Path, texts: dict[str, str]) -> Iterator[RowOrSkipped]:
    for speaker in SOURCES:
        for path in find_files(root / speaker, ".wav"):
            if path.stem in TEST:
                yield _row(path, texts, target / path.name)


def _row(path: Path, texts: dict[str, str], target: Path | None = None) -> Row:
    speaker = path.parent.name
    signals = {"target": str(target)} if target and target.is_file() else {}
    return Row(
        f"{speaker}/{path.stem}", str(path), text=texts.get(path.stem), speaker=speaker, language="en", signals=signals
    )


CORPUS = Layout(read, Options)
