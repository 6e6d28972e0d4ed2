"""Switchboard-1: English telephone calls (LDC97S62) with the ISIP transcripts, each side of a call on its channel."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import (
    CorpusPaths,
    Layout,
    RowOrSkipped,
    Skipped,
    cut_segment,
    find_files,
    first_existing,
    read_fields,
)
from attune.corpora._rows import Row
from attune.errors import DataError

SIDES = {"A": 0, "B": 1}
TRANSCRIPT = re.compile(r"sw(\d{4})([AB])-ms98-a-trans\.text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which calls are for dev."""

    dev_calls: Annotated[int, Field(ge=0, description="Number of calls for dev, those with the lowest numbers.")] = 40


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """Calls for training, and other calls for dev."""
    transcripts = first_existing(corpus, "swb_ms98_transcriptions", ".")
    sides = [path for path in find_files(transcripts, "-trans.text") if TRANSCRIPT.fullmatch(path.name)]
    if not sides:
        raise DataError(f"{corpus.source} has no transcripts sw*-ms98-a-trans.text. Put them beside the audio.")
    calls = sorted({_call(path) for path in sides})
    if options.dev_calls >= len(calls):
        raise DataError(
            f"{corpus.source} has {len(calls)} calls; dev_calls={options.dev_calls} leaves none for training. "
            "Lower dev_calls."
        )
    held_out = set(calls[: options.dev_calls])
    audio = {path.stem: path for path in find_files(corpus.folder, ".sph", ".wav", ".flac")}
    splits = {"train": [path for path in sides if _call(path) not in held_out]}
    if held_out:
        splits["dev"] = [path for path in sides if _call(path) in held_out]
    return {split: _rows(paths, audio) for split, paths in splits.items()}


def _call(transcript: Path) -> str:
    return transcript.name[2:6]


def _rows(transcripts: list[Path], audio: dict[str, Path]) -> Iterator[RowOrSkipped]:
    for path in transcripts:
        call, side = path.name[2:6], path.name[6]
        recording = audio.get(f"sw0{call}") or audio.get(f"sw{call}") or path.with_name(f"sw0{call}.sph")
        for name, start, end, transcript in read_fields(path, 4):
            text = clean_transcript(transcript)
            if text:
                row = Row(
                    name, str(recording), text=text, speaker=f"sw{call}{side}", channel=SIDES[side], language="en"
                )
                yield cut_segment(row, start, end)
            else:
                yield Skipped(name, "empty transcript")


def clean_transcript(transcript: str) -> str:
    """The words alone: no noises, asides or laughter, and no marks on words.

    >>> written("[laughter-yeah] <b_aside> th[is]- [ruddle/riddle] {yuppiedom} them_1 [noise]")
    'yeah th- ruddle yuppiedom them'
    """
    transcript = re.sub(r"\[laughter-([^\]]+)\]", r"\1", transcript)
    transcript = re.sub(r"\[([^\]/ ]+)/[^\]]+\]", r"\1", transcript)
    transcript = re.sub(r"(?<!\S)\[[^\]]*\](?!\S)|<[^>]*>", " ", transcript)
    transcript = re.sub(r"\[[^\]]*\]", "", transcript)  # the part of a word that was not finished
    return " ".join(re.sub(r"_\d+$", "", word).strip("{}") for word in transcript.split())


CORPUS = Layout(read, Options, speakers_apart=True)
