"""Common Voice: any language and release; `--from` is the folder with clips/ and the TSV files."""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.corpora._layout import Found, Layout, Place, Skipped, one_of
from attune.corpora._rows import Row
from attune.corpora._tables import records_of
from attune.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which of the release's lists, and what becomes of accented letters."""

    splits: Annotated[tuple[str, ...], Field(description="TSV files, without .tsv.")] = ("train", "dev", "test")
    letters: Annotated[
        Literal["keep", "fold"], Field(description="Keep letters as they are, or write é as e, å as a.")
    ] = "keep"


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """A split for each list that was asked for."""
    clips = one_of(place, "clips")
    for split in options.splits:
        one_of(place, f"{split}.tsv")
    return {split: _rows(clips, clips.with_name(f"{split}.tsv"), options) for split in options.splits}


def _rows(clips: Path, table: Path, options: Options) -> Iterator[Found]:
    durations = _durations(clips.with_name("clip_durations.tsv"))
    for record in records_of(table, ("path", "sentence", "client_id")):
        if isinstance(record, Skipped):
            yield record
            continue
        name = record["path"] if Path(record["path"]).suffix else f"{record['path']}.mp3"
        if Path(name).name != name:
            yield Skipped(name, "a path that leads out of clips/")
            continue
        yield Row(
            Path(name).stem,
            str(clips / name),
            seconds=durations.get(name),
            text=spelled(record["sentence"], options.letters),
            speaker=record["client_id"] or None,
            language=record.get("locale") or None,
            labels={key: record[key] for key in ("age", "gender", "accents", "variant") if record.get(key)},
        )


def spelled(sentence: str, letters: str) -> str:
    """The sentence with each letter in one character, or without its accents."""
    if letters == "keep":
        return unicodedata.normalize("NFC", sentence)
    bare = (each for each in unicodedata.normalize("NFKD", sentence) if unicodedata.category(each) != "Mn")
    return unicodedata.normalize("NFC", "".join(bare))


def _durations(table: Path) -> Mapping[str, float]:
    """Seconds by clip, as newer releases tell them; anything odd is left to the audio file."""
    if not table.exists():
        return {}
    try:
        records = [each for each in records_of(table, ("clip", "duration[ms]")) if not isinstance(each, Skipped)]
    except DataError:
        return {}
    return {
        record["clip"]: int(record["duration[ms]"]) / 1000
        for record in records
        if record["duration[ms]"].isdecimal() and record["duration[ms]"].strip("0")
    }


CORPUS = Layout(read, Options, speakers_apart=True)
