"""Switchboard-1: English telephone calls (LDC97S62) with the ISIP transcripts, each side of a call on its channel."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import Found, Layout, Place, Skipped, files_below, one_of, pairs_of, slice_of
from attune.corpora._rows import Row
from attune.errors import DataError

SIDES = {"A": 0, "B": 1}
TRANSCRIPT = re.compile(r"sw(\d{4})([AB])-ms98-a-trans\.text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which calls are held out."""

    dev_calls: Annotated[int, Field(ge=0, description="So many calls, those of the lowest number, are for dev.")] = 40


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """Calls for training and, apart from them, calls for dev."""
    transcripts = one_of(place, "swb_ms98_transcriptions", ".")
    sides = [path for path in files_below(transcripts, "-trans.text") if TRANSCRIPT.fullmatch(path.name)]
    if not sides:
        raise DataError(f"{place.source} has no transcripts sw*-ms98-a-trans.text. Put them beside the audio.")
    calls = sorted({_call(path) for path in sides})
    if options.dev_calls >= len(calls):
        raise DataError(
            f"{place.source} has {len(calls)} calls; dev_calls={options.dev_calls} leaves none to learn from."
        )
    held_out = set(calls[: options.dev_calls])
    audio = {path.stem: path for path in files_below(place.folder, ".sph", ".wav", ".flac")}
    splits = {"train": [path for path in sides if _call(path) not in held_out]}
    if held_out:
        splits["dev"] = [path for path in sides if _call(path) in held_out]
    return {split: _rows(paths, audio) for split, paths in splits.items()}


def _call(transcript: Path) -> str:
    return transcript.name[2:6]


def _rows(transcripts: list[Path], audio: dict[str, Path]) -> Iterator[Found]:
    for path in transcripts:
        call, side = path.name[2:6], path.name[6]
        recording = audio.get(f"sw0{call}") or audio.get(f"sw{call}") or path.with_name(f"sw0{call}.sph")
        for name, start, end, said in pairs_of(path, 4):
            text = written(said)
            if text:
                row = Row(
                    name, str(recording), text=text, speaker=f"sw{call}{side}", channel=SIDES[side], language="en"
                )
                yield slice_of(row, start, end)
            else:
                yield Skipped(name, "nothing is said")


def written(said: str) -> str:
    """The words alone, as they were said: no noises, asides or laughter, and no marks on words.

    >>> written("[laughter-yeah] <b_aside> th[is]- [ruddle/riddle] {yuppiedom} them_1 [noise]")
    'yeah th- ruddle yuppiedom them'
    """
    said = re.sub(r"\[laughter-([^\]]+)\]", r"\1", said)
    said = re.sub(r"\[([^\]/ ]+)/[^\]]+\]", r"\1", said)
    said = re.sub(r"(?<!\S)\[[^\]]*\](?!\S)|<[^>]*>", " ", said)
    said = re.sub(r"\[[^\]]*\]", "", said)  # the part of a word that was not finished
    return " ".join(re.sub(r"_\d+$", "", word).strip("{}") for word in said.split())


CORPUS = Layout(read, Options, speakers_apart=True)
