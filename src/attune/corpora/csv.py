"""CSV or TSV files, any delimiter, columns of any name; `--from` is a file, or a folder with one for each split."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._columns import USUAL, Columns, find_audio, guess_columns, other_columns, split_name
from attune.corpora._layout import (
    CorpusPaths,
    Layout,
    Names,
    RowOrSkipped,
    Skipped,
    count_lines,
    cut_segment,
    parse_float,
)
from attune.corpora._manifest_rows import split_files
from attune.corpora._ratios import Share, SplitBy, cut_by_ratio
from attune.corpora._rows import Row
from attune.corpora._scan import resolve_audio
from attune.corpora._tables import read_header, read_records, sniff_delimiter
from attune.errors import DataError

LOOKED_AT = 20  # records that tell what a column holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The names of the columns; those that are not given are guessed from the header."""

    audio: Annotated[str | None, Field(description="The column of the audio file.")] = None
    text: Annotated[str | None, Field(description="The column of the text.")] = None
    id: Annotated[str | None, Field(description="The column of the id (default: the audio path).")] = None
    speaker: Annotated[str | None, Field(description="The column of the speaker.")] = None
    language: Annotated[str | None, Field(description="The column of the language.")] = None
    start: Annotated[str | None, Field(description="The column of a segment's start in its recording.")] = None
    end: Annotated[str | None, Field(description="The column of a segment's end.")] = None
    seconds: Annotated[str | None, Field(description="The column of the duration (default: measured).")] = None
    labels: Annotated[Names | None, Field(description="Columns that become labels (default: all others).")] = None
    root: Annotated[str | None, Field(description="Folder that audio paths are relative to (default: the file's).")] = (
        None
    )
    split: Annotated[str | None, Field(description="The column with train, dev or test.")] = None
    dev: Annotated[Share, Field(description="Share of the rows for dev, cut by speaker, e.g. 0.1.")] = 0.0
    test: Annotated[Share, Field(description="Share of the rows for test, cut by speaker.")] = 0.0
    split_by: Annotated[
        SplitBy | None, Field(description="Keep speakers or recordings apart (default: speakers where known).")
    ] = None


@dataclass(frozen=True, slots=True)
class _Table:
    """A file, its columns, and how its audio paths are completed."""

    path: Path
    columns: Columns
    root: Path
    suffix: str
    has_rest: bool = True  # with the rows of its first split come the records that belong to none

    @property
    def note(self) -> str:
        place = f"; audio below {self.root}" if self.root != self.path.parent or self.suffix else ""
        return f"{self.path.name}: {self.columns.describe()}{place}; delimiter {sniff_delimiter(self.path)!r}"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """A split for each file, by its name, or for each value of a split column; dev and test are cut off one split."""
    tables = _tables(corpus, options)
    splits: dict[str, list[_Table]] = {}
    for name, table in tables.items():
        for number, split in enumerate(_split_values(table) if table.columns.split else [name]):
            splits.setdefault(split, []).append(replace(table, has_rest=number == 0))
    if not (options.dev or options.test):
        return {split: _rows_of(own, split) for split, own in splits.items()}
    if len(splits) > 1:
        raise DataError(f"{corpus.source} has the splits {', '.join(splits)}. Leave out dev= and test=.")
    ((split, own),) = splits.items()
    return cut_by_ratio(partial(_rows_of, own, split), {"test": options.test, "dev": options.dev}, options.split_by)


def notes(corpus: CorpusPaths, options: Options) -> Iterator[str]:
    """Which column was taken for what."""
    return (table.note for table in _tables(corpus, options).values())


def _tables(corpus: CorpusPaths, options: Options) -> dict[str, _Table]:
    return {name: _open(path, options) for name, path in split_files(corpus, ".csv", ".tsv").items()}


def _open(path: Path, options: Options) -> _Table:
    given = {name: getattr(options, name) for name in USUAL}
    named = [name for name in (*given.values(), *(options.labels or ())) if name]
    first = [each for each in islice(read_records(path, named), LOOKED_AT) if not isinstance(each, Skipped)]
    header = read_header(path)
    columns = guess_columns(path, [name for name in header if name not in (options.labels or ())], first, given)
    labels = options.labels if options.labels is not None else other_columns(header, columns)
    if options.root:
        root, suffix = Path(options.root).absolute(), ""
    else:
        root, suffix = find_audio(path.parent, [cell for each in first if (cell := each[columns.audio].strip())])
    return _Table(path, replace(columns, labels=tuple(labels)), root, suffix)


def _split_values(table: _Table) -> list[str]:
    records = read_records(table.path, ())
    found = Counter(_split_of(record, table) for record in records if not isinstance(record, Skipped))
    return [name for name in found if name]


def _split_of(record: dict[str, str], table: _Table) -> str:
    return split_name(record[table.columns.split]) if table.columns.split else ""


def _rows_of(tables: Iterable[_Table], split: str) -> Iterator[RowOrSkipped]:
    for table in tables:
        yield from _rows(table, split)


def _rows(table: _Table, split: str) -> Iterator[RowOrSkipped]:
    """The rows of a split; what belongs to none is skipped with the first one's."""
    for number, record in enumerate(read_records(table.path, ()), 2):
        if isinstance(record, Skipped):
            if table.has_rest:
                yield record
        elif not table.columns.split or (own := _split_of(record, table)) == split:
            yield _row(record, table, number)
        elif not own and table.has_rest:
            yield Skipped(f"{table.path.name}:{number}", "no split")


def _row(record: dict[str, str], table: _Table, number: int) -> RowOrSkipped:
    columns = table.columns
    cells = {name: record[column].strip() or None for name in USUAL if (column := getattr(columns, name))}
    audio = cells["audio"]
    if not audio:
        return Skipped(f"{table.path.name}:{number}", "no audio")
    start, end = cells.get("start"), cells.get("end")
    stem = audio.rpartition(".")[0] or audio
    row = Row(
        cells.get("id") or (f"{stem}@{start}" if start else stem),
        resolve_audio(table.root, f"{audio}{table.suffix}"),
        seconds=parse_float(cells.get("seconds") or ""),
        text=record[columns.text] if columns.text else None,
        speaker=cells.get("speaker"),
        language=cells.get("language"),
        labels={name: label for name in columns.labels if (label := record[name].strip())},
    )
    if start and end:
        return cut_segment(row, start, end)
    if start and row.seconds is not None:
        return cut_segment(row, start, (parse_float(start) or 0.0) + row.seconds)
    return row


def count(corpus: CorpusPaths, options: Options) -> int:
    """The records of all tables: a line each, but for the headers."""
    files = split_files(corpus, ".csv", ".tsv").values()
    return max(0, count_lines(files) - len(files))


CORPUS = Layout(read, Options, notes=notes, count=count)
