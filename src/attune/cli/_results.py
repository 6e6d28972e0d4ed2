"""Where the results of a command go: lines on stdout, one JSON value, and --out in the format of its suffix."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from attune.cli._terminal import print_json
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.metrics import Json
    from attune.report.lines import Lines
    from attune.types import TextSegment, Word

APPENDED = ".jsonl"


class ResultRow(Protocol):
    """The result of one recording, or why there is none."""

    @property
    def path(self) -> str:
        """The recording."""

    @property
    def problem(self) -> str | None:
        """Why there is no result."""

    @property
    def line(self) -> str:
        """The result as it is printed."""

    @property
    def segments(self) -> tuple[TextSegment, ...]:
        """The pieces of a transcript with their times."""

    @property
    def words(self) -> tuple[Word, ...]:
        """The words of a transcript with their times."""

    def as_json(self) -> dict[str, Json]:
        """Everything that is known of it."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a table of results has: its columns, the one that plain text has, and which formats there are."""

    columns: tuple[str, ...]
    text: str
    formats: tuple[str, ...]


@dataclass
class ResultFile:
    """--out: a .jsonl grows by a line for each result, a folder by a file; any other file is written in the end."""

    out: Path
    suffix: str
    layout: TableLayout
    is_folder: bool
    rows: list[ResultRow] = field(default_factory=list)
    lines: Lines | None = None
    sources: Sequence[str] = ()  # what recordings were asked for, among which folders

    def wanted(self, paths: Iterable[str]) -> list[str]:
        """The recordings whose results are not there yet."""
        from attune.report.timed import SEVERAL

        wanted = [path for path in dict.fromkeys(paths) if not self._is_done(path)]
        if _is_single(self.suffix) and not self.is_folder and len(wanted) > 1:
            raise ConfigError(
                f"--out {self.out}: {self.suffix} is one file per recording, and there are {len(wanted)}. Name a "
                f"folder: --out {self.out.with_suffix('')} --format {self.suffix[1:]}"
            )
        names = [self._name(path) for path in wanted] if self.is_folder or self.suffix in SEVERAL else []
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice:
            raise ConfigError(
                f"--out {self.out}: two recordings would both be {twice} in it. Give them other names, or give the "
                "folder that both are below: the folders in it become part of their names."
            )
        return wanted

    def add(self, row: ResultRow) -> None:
        """Keep a result; on disk at once where the format allows it."""
        if self.lines:
            values = {name: value for name, value in row.as_json().items() if value and name != "path"}
            self.lines.add(row.path, **values)
        elif self.is_folder:
            _write(self._file(row.path), self._text([row]))
        else:
            self.rows.append(row)

    def close(self) -> None:
        """Write what is written in one piece."""
        if self.rows:
            _write(self.out, self._text(self.rows))

    def _is_done(self, path: str) -> bool:
        return path in self.lines.ids if self.lines else self.is_folder and self._file(path).is_file()

    def _file(self, path: str) -> Path:
        from attune.report.timed import SPELLINGS

        return self.out / f"{self._name(path)}{SPELLINGS.get(self.suffix, self.suffix)}"

    def _name(self, path: str) -> str:
        """What to call a recording: as its file, after its folders below one that was given."""
        for source in self.sources:
            if path != source and Path(path).is_relative_to(source):
                folder = Path(path).relative_to(source).parent
                return str(folder / recording_name(path)) if ".." not in folder.parts else recording_name(path)
        return recording_name(path)

    def _text(self, rows: Sequence[ResultRow]) -> str:
        from attune.report.formats import table_text
        from attune.report.timed import TIMED, TimedText, timed_text

        if self.suffix in TIMED:
            names = [recording_name(row.path) for row in rows]
            if len(set(names)) < len(names):
                names = [self._name(row.path) for row in rows]
            texts = [TimedText(name, row.segments, row.words) for name, row in zip(names, rows, strict=True)]
            return "".join(timed_text(self.suffix, each) for each in texts)
        return table_text(self.suffix, [row.as_json() for row in rows], self.layout.columns, self.layout.text)


def recording_name(path: str) -> str:
    """What to call a recording: as its file, without folder and suffix."""
    return Path(unquote(urlsplit(path).path) if "://" in path else path).stem


def _place(text: str) -> Path | str:
    """A path, or a prefix of an object store."""
    return text if text.startswith("s3://") else Path(text)


def add_out(parser: ArgumentParser, formats: str) -> None:
    """Take --out and --format."""
    parser.add_argument(
        "--out",
        type=_place,
        metavar="FILE|FOLDER",
        help=f"write the results there, as {formats}; a .jsonl or a folder is continued where it was cut off",
    )
    parser.add_argument(
        "--format", metavar="FORMAT", help="with --out FOLDER: one file of this format per recording, e.g. srt"
    )


def open_results(arguments: Namespace, layout: TableLayout) -> ResultFile | None:
    """The file or folder of --out; what could not be written is refused before anything is computed."""
    from attune.files import explain_write_errors, require_writable
    from attune.report.formats import require_format
    from attune.report.lines import Lines

    out: Path | str | None = arguments.out
    if out is None:
        if arguments.format:
            raise ConfigError("--format needs --out FOLDER.")
        return None
    if isinstance(out, str):
        raise ConfigError(f"--out {out}: only `attune transcribe` writes shards. Name a file or a folder here.")
    if arguments.format:
        suffix = require_format(Path(f"x.{arguments.format.lstrip('.')}"), layout.formats)
        if out.suffix.lower() in layout.formats:
            raise ConfigError(
                f"--out {out} names a file, and --format a folder of files. Leave out --format, or name a folder: "
                f"--out {out.with_suffix('')} --format {suffix[1:]}"
            )
        with explain_write_errors(out, "Name another folder."):
            out.mkdir(parents=True, exist_ok=True)
        require_writable(out / "results", "Name another folder.")
        return ResultFile(out, suffix, layout, is_folder=True, sources=arguments.files)
    require_writable(out, "Name another file, or a folder with --format.")
    suffix = require_format(out, layout.formats)
    lines = Lines(out) if suffix == APPENDED else None
    return ResultFile(out, suffix, layout, is_folder=False, lines=lines, sources=arguments.files)


def report(rows: Iterable[ResultRow], results: ResultFile | None, as_json: bool, total: int = 0) -> int:
    """Print and keep each result as it comes; 2 when a recording could not be read.

    With a `total`, a bar shows how many there are, where it does not get between the lines.
    """
    from attune.display import Display

    bar = Display(sys.stderr) if sys.stderr.isatty() and (as_json or not sys.stdout.isatty()) else None
    done = []
    for row in rows:
        done.append(row)
        if bar and total:
            bar.progress("recordings", len(done), total, "file")
        if row.problem:
            print(row.problem, file=sys.stderr, flush=True)
            continue
        if results:
            results.add(row)
        if not as_json:
            print(row.line, flush=True)
    if results:
        results.close()
        there = (
            f"results: {results.out}" if done else f"Nothing to do: {results.out} has the results of all recordings."
        )
        if not done or not all(row.problem for row in done):
            print(there, file=sys.stderr)
    if as_json:
        print_json([row.as_json() for row in done])
    return 2 if any(row.problem for row in done) else 0


def plain(value: object) -> Json:
    """Records and tuples as JSON has them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value  # type: ignore[return-value]


def _is_single(suffix: str) -> bool:
    """Whether a file of this format is about one recording."""
    from attune.report.timed import SEVERAL, TIMED

    return suffix in TIMED and suffix not in SEVERAL


def _write(path: Path, text: str) -> None:
    from attune.files import explain_write_errors, write_text

    with explain_write_errors(path, "Name another file."):
        write_text(path, text)
