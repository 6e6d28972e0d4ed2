"""Results as files in the format of their suffix: tables, JSON, plain text, captions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attune.catalog import suggestion
from attune.errors import ConfigError
from attune.metrics import Json
from attune.types import TextSegment, Word

TABLES = (".jsonl", ".json", ".csv", ".tsv", ".txt")
CAPTIONS = (".srt", ".vtt")
LONGEST_CAPTION = 84  # characters: two lines of a screen

Row = Mapping[str, Json]


def require_format(path: Path, known: Sequence[str]) -> str:
    """The suffix of a file to write; one that is no known format is refused before anything is computed."""
    suffix = path.suffix.lower()
    if suffix not in known:
        raise ConfigError(f"--out {path}: unknown format {suffix!r}{suggestion(suffix, known)}")
    return suffix


def table_text(suffix: str, rows: Sequence[Row], columns: Sequence[str], text: str) -> str:
    """All rows as one file; tables have these columns, and plain text has the column `text` alone."""
    match suffix:
        case ".json":
            return json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n"
        case ".jsonl":
            return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        case ".csv":
            written = io.StringIO()
            writer = csv.writer(written, lineterminator="\n")
            writer.writerows([columns, *([_cell(row.get(name)) for name in columns] for row in rows)])
            return written.getvalue()
        case ".tsv":
            lines = [columns, *([_on_one_line(_cell(row.get(name))) for name in columns] for row in rows)]
            return "".join("\t".join(line) + "\n" for line in lines)
        case _:
            return "".join(_on_one_line(_cell(row.get(text))) + "\n" for row in rows)


def caption_text(suffix: str, segments: Sequence[TextSegment], words: Sequence[Word]) -> str:
    """Captions as SubRip (.srt) or WebVTT (.vtt); segments that are long are cut between words that have times."""
    captions = [part for segment in segments if segment.text for part in _cut(segment, words)]
    mark = "," if suffix == ".srt" else "."
    blocks = [f"{_clock(each.start, mark)} --> {_clock(each.end, mark)}\n{each.text}\n" for each in captions]
    if suffix == ".srt":
        return "\n".join(f"{number}\n{block}" for number, block in enumerate(blocks, 1))
    return "\n".join(["WEBVTT\n", *blocks])


def _cut(segment: TextSegment, words: Sequence[Word]) -> Iterator[TextSegment]:
    own = [word for word in words if segment.start <= word.start < segment.end]
    if len(segment.text) <= LONGEST_CAPTION or len(own) < 2:
        yield segment
        return
    first, text = own[0], own[0].text
    for word in own[1:]:
        if len(text) + 1 + len(word.text) > LONGEST_CAPTION:
            yield TextSegment(first.start, word.start, text)
            first, text = word, word.text
        else:
            text = f"{text} {word.text}"
    yield TextSegment(first.start, segment.end, text)


def _clock(seconds: float, mark: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{mark}{milliseconds:03}"


def _cell(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _on_one_line(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())
