"""VoxCeleb1: who speaks (1,251 celebrities); the identification split, and the recordings of the trial list."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import Found, Layout, Place, Skipped, files_below, one_of, pairs_of
from attune.corpora._rows import Row
from attune.errors import DataError

PARTS = {"1": "train", "2": "dev", "3": "test"}
ROOTS = ("wav", "dev/wav", "test/wav", "vox1_dev_wav/wav", "vox1_test_wav/wav")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the lists are."""

    split: Annotated[str, Field(description="The identification split, below --from or absolute.")] = "iden_split.txt"
    trials: Annotated[str, Field(description="The verification trials, below --from or absolute.")] = "veri_test.txt"


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """The three parts of the identification split; `trials` has each recording of the trial list once."""
    roots = [place.folder / root for root in ROOTS if (place.folder / root).is_dir()]
    if not roots:
        if next(files_below(place.folder, ".m4a"), None):
            raise DataError(
                f"{place.source} has .m4a files, which attune does not decode. Convert them first, for example "
                "with `ffmpeg -i IN.m4a -ac 1 -ar 16000 OUT.wav`, into a folder wav/ with the same names."
            )
        raise DataError(f"{place.source} has no folder {', '.join(ROOTS)}.")
    splits: dict[str, Iterator[Found]] = {}
    if (place.folder / options.split).exists():
        chosen = place.folder / options.split
        splits |= {split: _identification(roots, chosen, part) for part, split in PARTS.items()}
    if (place.folder / options.trials).exists():
        splits["trials"] = _trials(roots, place.folder / options.trials)
    if not splits:
        one_of(place, options.split, options.trials)
    return splits


def _identification(roots: list[Path], listed: Path, part: str) -> Iterator[Found]:
    for own, name in pairs_of(listed):
        if own not in PARTS:
            yield Skipped(name, "a line without a part from 1 to 3")
        elif own == part:
            yield _row(roots, name.strip())


def _trials(roots: list[Path], listed: Path) -> Iterator[Found]:
    trials = list(pairs_of(listed, 3))
    names = sorted({name.strip() for _, first, second in trials for name in (first, second)})
    yield from (_row(roots, name) for name in names)


def _row(roots: list[Path], name: str) -> Found:
    """`id10001/VIDEO/00001.wav`, wherever it was unpacked to."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return Skipped(name, "a path that leads out of the corpus")
    found = next((root / name for root in roots if (root / name).is_file()), roots[0] / name)
    speaker = name.split("/")[0]
    return Row(name.rpartition(".")[0], str(found), speaker=speaker, labels={"video": name.split("/")[1]})


CORPUS = Layout(read, Options)
