"""Common Voice: any language and release; `--from` is the folder with clips/ and the TSV files."""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, Names, RowOrSkipped, Skipped, first_existing
from attune.corpora._rows import Row
from attune.corpora._tables import read_records
from attune.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which TSV files of the release, and how accented letters are written."""

    splits: Annotated[Names, Field(description="TSV files, without .tsv.")] = ("train", "dev", "test")
    letters: Annotated[
        Literal["keep", "fold"], Field(description="Keep letters as they are, or write é as e, å as a.")
    ] = "keep"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """A split for each of `splits`."""
    clips = first_existing(corpus, "clips")
    for split in options.splits:
        first_existing(corpus, f"{split}.tsv")
    return {split: _rows(clips, clips.with_name(f"{split}.tsv"), options) for split in options.splits}


def _rows(clips: Path, table: Path, options: Options) -> Iterator[RowOrSkipped]:
    durations = _durations(clips.with_name("clip_durations.tsv"))
    for record in read_records(table, ("path", "sentence", "client_id")):
        if isinstance(record, Skipped):
            yield record
            continue
        name = record["path"] if Path(record["path"]).suffix else f"{record['path']}.mp3"
        if Path(name).name != name:
            yield Skipped(name, "path outside clips/")
            continue
        yield Row(
            Path(name).stem,
            str(clips / name),
            seconds=durations.get(name),
            text=normalize_letters(record["sentence"], options.letters),
            speaker=record["client_id"] or None,
            language=record.get("locale") or None,
            labels={key: record[key] for key in ("age", "gender", "accents", "variant") if record.get(key)},
        )


def normalize_letters(sentence: str, letters: str) -> str:
    """The sentence in NFC, or without accents."""
    if letters == "keep":
        return unicodedata.normalize("NFC", sentence)
    bare = (each for each in unicodedata.normalize("NFKD", sentence) if unicodedata.category(each) != "Mn")
    return unicodedata.normalize("NFC", "".join(bare))


def _durations(table: Path) -> Mapping[str, float]:
    """Seconds by clip from clip_durations.tsv of newer releases; invalid values are measured instead."""
    if not table.exists():
        return {}
    try:
        records = [each for each in read_records(table, ("clip", "duration[ms]")) if not isinstance(each, Skipped)]
    except DataError:
        return {}
    return {
        record["clip"]: int(record["duration[ms]"]) / 1000
        for record in records
        if record["duration[ms]"].isdecimal() and record["duration[ms]"].strip("0")
    }


CORPUS = Layout(read, Options, speakers_apart=True)
