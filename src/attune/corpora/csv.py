"""CSV or TSV files with columns of any name; `--from` is a file, or a folder with one file for each split."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped, parse_float
from attune.corpora._manifest_rows import split_files
from attune.corpora._rows import Row
from attune.corpora._scan import resolve_audio
from attune.corpora._tables import read_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The names of the columns."""

    audio: Annotated[str, Field(description="The column of the audio file.")] = "audio"
    text: Annotated[str | None, Field(description="The column of the text.")] = None
    id: Annotated[str | None, Field(description="The column of the id (default: the audio path).")] = None
    speaker: str | None = None
    language: str | None = None
    seconds: Annotated[str | None, Field(description="The column of the duration (default: measured).")] = None
    labels: Annotated[tuple[str, ...], Field(description="Columns that become labels.")] = ()
    root: Annotated[str | None, Field(description="Folder that audio paths are relative to (default: the file's).")] = (
        None
    )


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """A split for each file, by its name."""
    return {name: _rows(path, options) for name, path in split_files(corpus, ".csv", ".tsv").items()}


def _rows(path: Path, options: Options) -> Iterator[RowOrSkipped]:
    named = [options.audio, options.text, options.id, options.speaker, options.language, options.seconds]
    root = Path(options.root).absolute() if options.root else path.parent
    for number, record in enumerate(read_records(path, [name for name in (*named, *options.labels) if name]), 2):
        if isinstance(record, Skipped):
            yield record
            continue
        audio = record[options.audio]
        if not audio:
            yield Skipped(f"{path.name}:{number}", "no audio")
            continue
        seconds = parse_float(_cell(record, options.seconds) or "")
        yield Row(
            _cell(record, options.id) or audio.rpartition(".")[0] or audio,
            resolve_audio(root, audio),
            seconds=seconds,
            text=record[options.text] if options.text else None,
            speaker=_cell(record, options.speaker),
            language=_cell(record, options.language),
            labels={name: record[name] for name in options.labels if record[name]},
        )


def _cell(record: dict[str, str], name: str | None) -> str | None:
    return (record[name] or None) if name else None


CORPUS = Layout(read, Options)
