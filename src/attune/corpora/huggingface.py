"""HF datasets on disk: written by `save_to_disk` (Arrow), or Parquet files as on the Hub; audio is not decoded.

Rows point at the bytes of a recording in an Arrow file. In a Parquet file they have its row number, and reading one
reads its row group. `copy=true` writes each recording to its own file.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped, find_files
from attune.corpora._rows import NAMES, BadRow, read_row
from attune.corpora._scan import resolve_audio
from attune.errors import DataError
from attune.files import completed
from attune.sources import audio_column

TEXTS = (*NAMES["text"], "transcription", "normalized_text")
BATCH = 256  # rows read together


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which columns, and whether recordings are copied."""

    audio: Annotated[str, Field(description="The column of the audio.")] = "audio"
    text: Annotated[str | None, Field(description="The column of the text, if its name is unusual.")] = None
    copy: Annotated[bool, Field(description="Write each recording to its own file, for fast random access.")] = False


@dataclass(frozen=True, slots=True)
class _Cell:
    """A recording: its bytes or its path, and how a manifest can refer to it."""

    content: bytes | None
    path: str | None
    first_byte: int | None = None
    row: int | None = None


Cells = Callable[[Path, Options], Iterator[tuple[dict[str, Any], _Cell]]]


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The splits of a dataset, by their names."""
    _require_arrow()
    splits = {split: (folder, _listed(folder), _arrow_cells) for split, folder in _saved(corpus.folder).items()} or {
        split: (corpus.folder, paths, _parquet_cells) for split, paths in _parquet(corpus.folder).items()
    }
    if not splits:
        raise DataError(f"{corpus.source} is neither a dataset written by save_to_disk nor a folder of Parquet files.")
    return {name: _rows(name, root, paths, cells, corpus, options) for name, (root, paths, cells) in splits.items()}


def _require_arrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise DataError("HF datasets need pyarrow. Run: pip install 'attune-speech[data]'") from error


def _saved(folder: Path) -> dict[str, Path]:
    """The Arrow folders of a dataset, or of one of its splits."""
    if (folder / "dataset_dict.json").exists():
        return {name: folder / name for name in json.loads((folder / "dataset_dict.json").read_text())["splits"]}
    if (folder / "state.json").exists():
        split = json.loads((folder / "state.json").read_text()).get("_split")
        return {split or folder.name: folder}
    return {}


def _listed(folder: Path) -> list[Path]:
    """The Arrow files of a split. Other Arrow files in the folder are caches of `datasets`."""
    state = folder / "state.json"
    try:
        paths = [folder / each["filename"] for each in json.loads(state.read_text(encoding="utf-8"))["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{state} does not list the dataset's files. Save it again with save_to_disk.") from error
    for path in paths:
        if not path.is_file():
            raise DataError(f"{folder} is incomplete: {path.name} is missing. Copy or save it again.")
    return paths


def _parquet(folder: Path) -> dict[str, list[Path]]:
    """`train-00000-of-00002.parquet`, `train/0000.parquet` or `train.parquet`: all are of the split train."""
    paths = [folder] if folder.is_file() else list(find_files(folder, ".parquet"))
    splits: dict[str, list[Path]] = {}
    for path in paths:
        stem = re.sub(r"-\d+-of-\d+(-[0-9a-f]+)?$", "", path.stem)
        splits.setdefault(path.parent.name if stem.isdecimal() else stem, []).append(path)
    return splits


def _rows(
    split: str, root: Path, paths: list[Path], cells: Cells, corpus: CorpusPaths, options: Options
) -> Iterator[RowOrSkipped]:
    for path in paths:
        # Datasets of several languages have the same file names in each folder, so ids include the folder.
        name = path.relative_to(root).with_suffix("").as_posix() if path != root else path.stem
        for number, (fields, cell) in enumerate(cells(path, options)):
            yield _row(f"{split}/{name}/{number:06d}", path, fields, cell, corpus, options)


def _row(
    name: str, path: Path, fields: dict[str, Any], cell: _Cell, corpus: CorpusPaths, options: Options
) -> RowOrSkipped:
    plain = {key: value for key, value in fields.items() if isinstance(value, str | int | float)}
    text = next((plain.pop(key) for key in (options.text, *TEXTS) if key in plain), None)
    for key in NAMES["audio"]:  # Common Voice has a path beside its audio
        plain.pop(key, None)
    try:
        row = read_row(json.dumps({"id": name, **plain, "text": text, "audio": str(path)}).encode())
    except BadRow as bad:
        return Skipped(name, str(bad))
    row = replace(row, seconds=row.seconds if row.seconds else None, row=None)
    if not cell.content:
        if not cell.path:
            return Skipped(name, "no audio")
        return replace(row, audio=resolve_audio(path.parent, cell.path))
    if options.copy or (cell.first_byte is None and cell.row is None):
        return replace(row, audio=str(_copied(name, cell, corpus.to)))
    if cell.first_byte is not None:
        return replace(row, first_byte=cell.first_byte, byte_count=len(cell.content))
    return replace(row, row=cell.row)


def _copied(name: str, cell: _Cell, to: Path) -> Path:
    suffix = Path(cell.path or "").suffix.lower() or ".bin"
    path = to.absolute() / "audio" / f"{name}{suffix}"
    if not path.exists():
        with completed(path) as partial:
            partial.write_bytes(cell.content or b"")
    return path


def _arrow_cells(path: Path, options: Options) -> Iterator[tuple[dict[str, Any], _Cell]]:
    import pyarrow

    with _explained(path, "Arrow"):
        file = pyarrow.memory_map(str(path))
        whole = file.read_buffer(file.size())
    for batch in _each(path, "Arrow", _arrow_batches(whole)):
        _require_column(path, batch.schema, options)
        others = batch.drop_columns([options.audio]).to_pylist()
        contents, paths = _contents_and_paths(batch.column(options.audio))
        places = _byte_ranges(contents, whole.address)
        for number, fields in enumerate(others):
            first, end = places[number]
            content = bytes(whole[first:end]) if contents[number].is_valid else None
            yield fields, _Cell(content, paths[number], first)


def _arrow_batches(whole: Any) -> Iterator[Any]:
    import pyarrow

    try:
        yield from pyarrow.ipc.open_stream(pyarrow.BufferReader(whole))
    except pyarrow.ArrowInvalid:  # the file format, not the stream format
        file = pyarrow.ipc.open_file(pyarrow.BufferReader(whole))
        yield from (file.get_batch(number) for number in range(file.num_record_batches))


def _contents_and_paths(column: Any) -> tuple[Any, list[str | None]]:
    if not column.type.num_fields:
        return column, [None] * len(column)
    return column.field("bytes"), column.field("path").to_pylist()


def _byte_ranges(contents: Any, base: int) -> list[tuple[int, int]]:
    """The byte range in the file of each value of a binary column."""
    import pyarrow

    _, bounds, data = contents.buffers()
    wide = np.int64 if pyarrow.types.is_large_binary(contents.type) else np.int32
    own = np.frombuffer(bounds, wide)[contents.offset : contents.offset + len(contents) + 1].astype(np.int64)
    own += data.address - base
    return list(zip(own[:-1].tolist(), own[1:].tolist(), strict=True))


def _parquet_cells(path: Path, options: Options) -> Iterator[tuple[dict[str, Any], _Cell]]:
    import pyarrow.parquet

    with _explained(path, "Parquet"):
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    _require_column(path, file.schema_arrow, options)
    _require_readable(path, file.schema_arrow, options)
    batches = _each(path, "Parquet", file.iter_batches(BATCH))
    for number, fields in enumerate(row for batch in batches for row in batch.to_pylist()):
        audio = fields.pop(options.audio)
        audio = {"bytes": audio} if isinstance(audio, bytes) else audio or {}
        yield fields, _Cell(audio.get("bytes"), audio.get("path"), row=number)


def _each(path: Path, kind: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Batches one after the other; what is damaged in one is reported with its file."""
    while True:
        with _explained(path, kind):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException, MemoryError) as error:  # a damaged size is an allocation that fails
        reason = " ".join(str(error).split())
        raise DataError(f"Cannot read {path} as {kind}: {reason}. Download it again.") from error


def _require_column(path: Path, schema: Any, options: Options) -> None:
    from pyarrow import types

    choice = f"Set audio=COLUMN to one of {', '.join(schema.names)}."
    if options.audio not in schema.names:
        raise DataError(f"{path} has no column {options.audio!r}. {choice}")
    kind = schema.field(options.audio).type
    if not (types.is_struct(kind) or types.is_binary(kind) or types.is_large_binary(kind)):
        raise DataError(f"{path}: the column {options.audio!r} has no audio but {kind}. {choice}")


def _require_readable(path: Path, schema: Any, options: Options) -> None:
    """A manifest refers to rows, not columns, so audio of any other column than the reader's must be copied."""
    chosen = audio_column(schema)
    if not options.copy and chosen not in (None, options.audio):
        raise DataError(
            f"The rows of {path} are read from the column {chosen!r}, not from {options.audio!r}. "
            "Add copy=true, which writes each recording to its own file, and give another --to."
        )


CORPUS = Layout(read, Options)
