"""Speech Commands v0.01 and v0.02: single words; every word a label, or the 12 classes of SUPERB."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.audio.decode import audio_seconds
from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, find_files, first_existing, read_lines
from attune.corpora._rows import Row
from attune.errors import DataError

TEN = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
UNKNOWN, SILENCE, NOISE = "_unknown_", "_silence_", "_background_noise_"
MOST_PER_CLASS = 2**27 - 1  # a constant of the corpus's rule
LISTS = {"dev": "validation_list.txt", "test": "testing_list.txt"}
# Each noise recording is divided in time, so that no two splits share a second of it.
SHARES = {"train": (0.0, 0.8), "dev": (0.8, 0.9), "test": (0.9, 1.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which classes, and which test set."""

    classes: Annotated[
        Literal["all", "12"], Field(description="Every word, or ten words, _unknown_ and _silence_.")
    ] = "all"
    split: Annotated[
        Literal["lists", "superb"],
        Field(description="By the corpus's own lists, or by hash as SUPERB has it, which needs `test`."),
    ] = "lists"
    test: Annotated[
        str | None, Field(description="The folder of the separate test set (speech_commands_test_set).")
    ] = None


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """Training has what is on neither of the two lists, which keep the speakers of the splits apart."""
    if options.split == "superb":
        return _superb(corpus, options)
    held_out = {split: set(read_lines(first_existing(corpus, name))) for split, name in LISTS.items()}
    splits = {split: _rows(corpus.folder, split, held_out, options) for split in SHARES}
    if options.test:
        splits["test"] = _separate_test(Path(options.test).absolute(), options)
    return splits


def _rows(root: Path, split: str, held_out: dict[str, set[str]], options: Options) -> Iterator[RowOrSkipped]:
    for path in find_files(root, ".wav"):
        name = path.relative_to(root).as_posix()
        own = next((each for each, names in held_out.items() if name in names), "train")
        if path.parent.name != NOISE and own == split:
            yield _row(path, name, options)
    if options.classes == "12":
        yield from _silences(root / NOISE, *SHARES[split])


def _superb(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """A tenth of the speakers is dev, a tenth is left out, and the test set is an archive of its own."""
    if options.test is None:
        raise DataError("SUPERB's test set is a separate archive. Name its folder: test=speech_commands_test_set_v0.01")
    splits = {split: _hashed(corpus.folder, split, options) for split in ("train", "dev")}
    return {**splits, "test": _separate_test(Path(options.test).absolute(), options)}


def _hashed(root: Path, split: str, options: Options) -> Iterator[RowOrSkipped]:
    for path in find_files(root, ".wav"):
        if path.parent.name != NOISE and _part(path) == split:
            yield _row(path, path.relative_to(root).as_posix(), options)
    if options.classes == "12":
        yield from _silences(root / NOISE, *SHARES[split])


def _part(path: Path) -> str | None:
    """The split of a speaker, by the rule of the corpus's README."""
    speaker = path.name.partition("_nohash_")[0]
    percentage = int(hashlib.sha1(speaker.encode()).hexdigest(), 16) % (MOST_PER_CLASS + 1) * (100 / MOST_PER_CLASS)
    return "dev" if percentage < 10 else None if percentage < 20 else "train"


def _separate_test(root: Path, options: Options) -> Iterator[RowOrSkipped]:
    for path in find_files(root, ".wav"):
        yield _row(path, f"test/{path.relative_to(root).as_posix()}", options)


def _row(path: Path, name: str, options: Options) -> Row:
    word = path.parent.name
    label = UNKNOWN if options.classes == "12" and word not in (*TEN, SILENCE) else word
    speaker = path.stem.partition("_nohash_")[0]
    text = None if word in (UNKNOWN, SILENCE) else word
    return Row(name.removesuffix(".wav"), str(path), text=text, speaker=speaker, labels={"word": label}, language="en")


def _silences(folder: Path, first: float, last: float) -> Iterator[RowOrSkipped]:
    """One-second segments of the background noises."""
    for path in find_files(folder, ".wav"):
        seconds = audio_seconds(path)
        start, end = int(seconds * first), int(seconds * last)
        for second in range(start, end):
            name = f"{NOISE}/{path.stem}-{second:03d}"
            yield Row(name, str(path), start=float(second), seconds=1.0, labels={"word": SILENCE})


CORPUS = Layout(read, Options, speakers_apart=True)
