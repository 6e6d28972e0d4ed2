"""Libri2Mix: mixtures of two LibriSpeech speakers, with each source beside them, and who speaks when.

Segments come from `rttm` files, which LibriMix's scripts write for diarization; without them rows have sources alone.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.corpora._layout import (
    CorpusPaths,
    Layout,
    RowOrSkipped,
    Skipped,
    find_files,
    first_existing,
    parse_float,
    read_fields,
)
from attune.corpora._rows import Row
from attune.errors import DataError
from attune.types import SpeakerSegment

SOURCES = ("s1", "s2")
RTTM = 9  # SPEAKER recording channel start duration <NA> <NA> speaker …


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which mixtures."""

    mode: Annotated[
        Literal["min", "max"], Field(description="Cut to the shorter source (separation), or as long as the longer.")
    ] = "min"
    mixture: Annotated[
        Literal["mix_clean", "mix_both", "mix_single"], Field(description="Without noise, with it, or one speaker.")
    ] = "mix_clean"
    rate: Annotated[Literal["8k", "16k"], Field(description="The sample rate of the mixtures.")] = "16k"
    train: Annotated[Literal["train-100", "train-360"], Field(description="The training set.")] = "train-100"
    diarization: Annotated[
        str | None, Field(description="The folder with train/, dev/ and test/, each with an rttm file.")
    ] = None


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The sets that are there, of one mode, mixture and rate."""
    inside = f"wav{options.rate}/{options.mode}"
    root = first_existing(corpus, inside, f"Libri2Mix/{inside}")
    folders = {"train": root / options.train, "dev": root / "dev", "test": root / "test"}
    there = {split: folder for split, folder in folders.items() if (folder / options.mixture).is_dir()}
    if not there:
        raise DataError(f"{root} has no {options.train}/{options.mixture}. Choose another `mixture` or `mode`.")
    return {split: _rows(folder, split, options) for split, folder in there.items()}


def _rows(folder: Path, split: str, options: Options) -> Iterator[RowOrSkipped]:
    segments = _segments(Path(options.diarization, split, "rttm")) if options.diarization else {}
    sources = SOURCES[:1] if options.mixture == "mix_single" else SOURCES
    for path in find_files(folder / options.mixture, ".wav"):
        signals = {name: folder / name / path.name for name in sources}
        if not all(each.is_file() for each in signals.values()):
            yield Skipped(path.stem, "missing source")
        elif options.diarization and path.stem not in segments:
            yield Skipped(path.stem, "not in the rttm file")
        else:
            speakers = " ".join(part.split("-")[0] for part in path.stem.split("_"))
            yield Row(
                path.stem,
                str(path),
                language="en",
                labels={"speakers": speakers},
                signals={name: str(each) for name, each in signals.items()},
                segments=segments.get(path.stem, ()),
            )


def _segments(rttm: Path) -> dict[str, tuple[SpeakerSegment, ...]]:
    found: dict[str, list[SpeakerSegment]] = defaultdict(list)
    for kind, recording, _, start, duration, _, _, speaker, *_ in read_fields(rttm, RTTM):
        begin, length = parse_float(start), parse_float(duration)
        if kind == "SPEAKER" and begin is not None and length is not None and length > 0:
            found[recording].append(SpeakerSegment(begin, round(begin + length, 6), speaker))
    return {name: tuple(sorted(each, key=lambda one: (one.start, one.speaker))) for name, each in found.items()}


CORPUS = Layout(read, Options, speakers_apart=True)
