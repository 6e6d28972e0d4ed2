"""Common Voice: any language and release; `--from` is the folder with clips/ and the TSV files."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import punctuation
from typing import Annotated, Literal

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, Names, RowOrSkipped, Skipped, count_lines, first_existing
from attune.corpora._rows import Row
from attune.corpora._tables import read_records
from attune.errors import DataError

# The text of SUPERB's OOD-ASR, by language.
UNSPACED = ("zh", "ja")
WITHOUT_LATIN = (*UNSPACED, "ar", "ru")  # rows with Latin letters or apostrophes are left out
LATIN = re.compile("[A-Z']")
FOREIGN = {"es": re.compile("[しらゴミムラ消箱良]"), "zh": re.compile("[ΜИТオカドヤ䴕]")}  # rows with these, too
MARKS = frozenset(punctuation.replace("'", "") + "丶ー☭−ː×─⋯\u0301\u0303\u030c")  # beside Unicode's punctuation
LOOKALIKES = str.maketrans("’ㄧ", "'一")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which TSV files and rows of the release, and how their text is written."""

    splits: Annotated[Names, Field(description="TSV files, without .tsv.")] = ("train", "dev", "test")
    letters: Annotated[
        Literal["keep", "fold"], Field(description="Keep letters as they are, or write é as e, å as a.")
    ] = "keep"
    accent: Annotated[str | None, Field(description="Only speakers with this accent, e.g. mexicano.")] = None
    text: Annotated[
        Literal["keep", "superb"],
        Field(
            description="superb: upper case without punctuation, Chinese without spaces; Arabic and Chinese without "
            "rows of Latin letters."
        ),
    ] = "keep"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """A split for each of `splits`."""
    clips = first_existing(corpus, "clips")
    for split in options.splits:
        first_existing(corpus, f"{split}.tsv")
    return {split: _rows(clips, clips.with_name(f"{split}.tsv"), options) for split in options.splits}


def count(corpus: CorpusPaths, options: Options) -> int:
    """The records of the tables: a line each, but for the headers."""
    tables = [corpus.folder / f"{split}.tsv" for split in options.splits]
    return max(0, count_lines(filter(Path.is_file, tables)) - len(tables))


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
        accents = record.get("accents") or record.get("accent") or ""
        if options.accent and options.accent.lower() not in [each.strip().lower() for each in accents.split(",")]:
            continue
        text = normalize_letters(record["sentence"], options.letters)
        if options.text == "superb":
            language = record.get("locale", "").partition("-")[0]
            text = superb_text(text, language)
            if reason := _left_out(text, language):
                yield Skipped(name, reason)
                continue
        yield Row(
            Path(name).stem,
            str(clips / name),
            seconds=durations.get(name),
            text=text,
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


def superb_text(sentence: str, language: str = "") -> str:
    """The sentence as in SUPERB's OOD-ASR: NFKC, upper case, and a space for punctuation other than an apostrophe.

    Chinese and Japanese have no spaces.
    """
    letters = unicodedata.normalize("NFKC", sentence).upper().translate(LOOKALIKES)
    words = "".join(" " if _is_mark(each) else each for each in letters).split()
    return ("" if language in UNSPACED else " ").join(words)


def _is_mark(letter: str) -> bool:
    return letter != "'" and (letter in MARKS or unicodedata.category(letter)[0] == "P")


def _left_out(text: str, language: str) -> str | None:
    """Why SUPERB has no such row."""
    if language in WITHOUT_LATIN and LATIN.search(text):
        return "Latin letters"
    if language in FOREIGN and FOREIGN[language].search(text):
        return "foreign letters"
    return None if text else "no words"


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


CORPUS = Layout(read, Options, speakers_apart=True, count=count)
