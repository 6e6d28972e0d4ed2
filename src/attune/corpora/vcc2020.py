"""VCC 2020: voice conversion. Training has one target speaker; test has others, with the same sentence of the target.

Expects the unpacked archives: source/, target_task1/, vcc2020_database_evaluation/, vcc2020_database_groundtruth/ and,
if they are there, vcc2020_database_transcriptions/. Or, as S3PRL puts them together, a folder for each speaker (SEF1 …,
TEF1 …) and prompts/Eng_transcriptions.txt.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, find_files, first_existing, read_fields
from attune.corpora._rows import Row

FOLDERS = (".", "source", "target_task1", "vcc2020_database_evaluation", "vcc2020_database_groundtruth")
PROMPTS = ("prompts", "vcc2020_database_transcriptions")
TRANSCRIPTIONS = ("eng_transcriptions.txt", "evaluation_transcriptions.txt")  # in lower case
SOURCES = ("SEF1", "SEF2", "SEM1", "SEM2")
DEV = frozenset(f"E1{number:04d}" for number in range(61, 71))
TEST = frozenset(f"E3{number:04d}" for number in range(1, 26))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Whose voice."""

    target: Annotated[Literal["TEF1", "TEF2", "TEM1", "TEM2"], Field(description="The speaker to convert to.")] = "TEF1"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """Train and dev are the target speaker's recordings; test is those of the four sources, 25 sentences each."""
    first_existing(corpus, *(f"{folder}/{options.target}" for folder in FOLDERS[:3]))
    prompts = [path for folder in PROMPTS for path in find_files(corpus.folder / folder, *TRANSCRIPTIONS)]
    texts = {name: text.strip() for path in prompts for name, text in read_fields(path)}
    target = _recordings(corpus.folder, options.target)
    own = [path for name, path in target.items() if name not in TEST]
    return {
        "train": (_row(path, texts) for path in own if path.stem not in DEV),
        "dev": (_row(path, texts, path) for path in own if path.stem in DEV),
        "test": _sources(corpus.folder, target, texts),
    }


def _recordings(root: Path, speaker: str) -> dict[str, Path]:
    """A speaker's recordings by name, in whichever folder they were unpacked to."""
    found = (path for folder in FOLDERS for path in find_files(root / folder / speaker, ".wav"))
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def _sources(root: Path, target: dict[str, Path], texts: dict[str, str]) -> Iterator[RowOrSkipped]:
    for speaker in SOURCES:
        for name, path in _recordings(root, speaker).items():
            if name in TEST:
                yield _row(path, texts, target.get(name))


def _row(path: Path, texts: dict[str, str], target: Path | None = None) -> Row:
    speaker = path.parent.name
    signals = {"target": str(target)} if target else {}
    return Row(
        f"{speaker}/{path.stem}", str(path), text=texts.get(path.stem), speaker=speaker, language="en", signals=signals
    )


CORPUS = Layout(read, Options)
