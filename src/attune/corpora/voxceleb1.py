"""VoxCeleb1: 1,251 speakers; the identification split, and the recordings of the trial list."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped, find_files, first_existing, read_fields
from attune.corpora._rows import Row
from attune.errors import DataError

PARTS = {"1": "train", "2": "dev", "3": "test"}
ROOTS = ("wav", "dev/wav", "test/wav", "vox1_dev_wav/wav", "vox1_test_wav/wav")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the lists are."""

    split: Annotated[str, Field(description="The identification split, below --from or absolute.")] = "iden_split.txt"
    trials: Annotated[str, Field(description="The verification trials, below --from or absolute.")] = "veri_test.txt"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The three parts of the identification split; `trials` has each recording of the trial list once."""
    roots = [corpus.folder / root for root in ROOTS if (corpus.folder / root).is_dir()]
    if not roots:
        if next(find_files(corpus.folder, ".m4a"), None):
            raise DataError(
                f"{corpus.source} has .m4a files, which attune does not decode. Convert them, e.g. with "
                "`ffmpeg -i IN.m4a -ac 1 -ar 16000 OUT.wav`, into a folder wav/ with the same names."
            )
        raise DataError(f"{corpus.source} has no folder {', '.join(ROOTS)}. Give --from the folder that has it.")
    splits: dict[str, Iterator[RowOrSkipped]] = {}
    if (corpus.folder / options.split).exists():
        chosen = corpus.folder / options.split
        splits |= {split: _identification(roots, chosen, part) for part, split in PARTS.items()}
    if (corpus.folder / options.trials).exists():
        splits["trials"] = _trials(roots, corpus.folder / options.trials)
    if not splits:
        first_existing(corpus, options.split, options.trials)
    return splits


def _identification(roots: list[Path], listed: Path, part: str) -> Iterator[RowOrSkipped]:
    for own, name in read_fields(listed):
        if own not in PARTS:
            yield Skipped(name, "part is not 1, 2 or 3")
        elif own == part:
            yield _row(roots, name.strip())


def _trials(roots: list[Path], listed: Path) -> Iterator[RowOrSkipped]:
    trials = list(read_fields(listed, 3))
    names = sorted({name.strip() for _, first, second in trials for name in (first, second)})
    yield from (_row(roots, name) for name in names)


def _row(roots: list[Path], name: str) -> RowOrSkipped:
    """The row of `id10001/VIDEO/00001.wav` in whichever folder it was unpacked to."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return Skipped(name, "path outside the corpus")
    found = next((root / name for root in roots if (root / name).is_file()), roots[0] / name)
    speaker = name.split("/")[0]
    return Row(name.rpartition(".")[0], str(found), speaker=speaker, labels={"video": name.split("/")[1]})


CORPUS = Layout(read, Options)
