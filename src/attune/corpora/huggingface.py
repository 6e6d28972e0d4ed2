"""HF datasets: hf://datasets/…, Parquet files, `save_to_disk` (Arrow), or tar files with TSVs as Common Voice's.

Audio is not decoded. Rows point at the bytes of a recording in an Arrow or tar file. In a Parquet file they have its
row number, and reading one reads its row group. `copy=true` writes each recording to its own file.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from attune.corpora._hub_rows import batches_of, class_names, explained, hub_row, require_arrow
from attune.corpora._layout import CorpusPaths, Layout, Names, RowOrSkipped, Skipped, find_files
from attune.corpora._rows import BadRow
from attune.corpora._scan import resolve_audio
from attune.corpora._shards import read_shard
from attune.corpora._transcripts import transcripts_of
from attune.errors import DataError
from attune.files import completed, parse_json
from attune.sources import audio_column

ROWS = 256  # read together


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which columns, and whether recordings are copied."""

    audio: Annotated[str, Field(description="The column of the audio.")] = "audio"
    text: Annotated[str | None, Field(description="The column of the text, if its name is unusual.")] = None
    config: Annotated[str | None, Field(description="One subset of the dataset, such as a language: be.")] = None
    splits: Annotated[Names, Field(description="Only these splits (default: all).")] = ()
    copy: Annotated[bool, Field(description="Write each recording to its own file, for fast random access.")] = False


@dataclass(frozen=True, slots=True)
class _Cell:
    """A recording: its bytes or its path, and how a manifest can refer to it."""

    content: bytes | None
    path: str | None
    first_byte: int | None = None
    row: int | None = None
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of columns with class numbers, their names


Cells = Callable[[Path, Options], Iterator[tuple[dict[str, Any], _Cell]]]


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The splits of a dataset, by their names."""
    require_arrow()
    saved = {name: folder for name, folder in _saved(corpus.folder).items() if name in (options.splits or [name])}
    splits = {split: (folder, _listed(folder), _arrow_cells) for split, folder in saved.items()} or {
        split: (corpus.folder, paths, _parquet_cells) for split, paths in _files(corpus, options, ".parquet").items()
    }
    if splits:
        return {name: _rows(name, root, paths, cells, corpus, options) for name, (root, paths, cells) in splits.items()}
    tars = {
        split: [path for path in paths if transcripts_of(str(path))]
        for split, paths in _files(corpus, options, ".tar").items()
    }
    if any(tars.values()):
        return {
            split: (each.found for path in paths for each in read_shard(str(path))) for split, paths in tars.items()
        }
    raise DataError(
        f"{corpus.source} is not a dataset. Expected what save_to_disk writes, a folder of Parquet files, or "
        "audio/…/SPLIT/*.tar with transcript/…/SPLIT.tsv."
    )


def choose(names: Sequence[str], options: Options) -> list[str]:
    """The files of a repository that these options need."""
    data = [name for name in names if name.endswith((".parquet", ".arrow", ".tar", ".tsv", ".json"))]
    chosen = [name for name in data if _is_of(name, options)]
    if not any(name.endswith((".parquet", ".arrow", ".tar")) for name in chosen):
        folders = sorted({part for name in data for part in PurePosixPath(name).parts[:-1]})
        wanted = f"config={options.config} splits={list(options.splits)}"
        raise DataError(f"The dataset has no data for {wanted}. Its folders: {', '.join(folders[:40]) or 'none'}.")
    return chosen


def _is_of(name: str, options: Options) -> bool:
    """Whether a file is of the chosen subset and splits, by the names of its folders and its own."""
    path = PurePosixPath(name)
    if options.config and path.suffix != ".json" and options.config not in path.parts[:-1]:
        return False
    return not options.splits or path.suffix == ".json" or _split_of(path) in options.splits


def _split_of(path: PurePosixPath) -> str:
    """`train-00000-of-00002.parquet`, `train/0000.parquet`, `train.parquet`, `train/be_train_0.tar`: all are train."""
    stem = re.sub(r"-\d+-of-\d+(-[0-9a-f]+)?$", "", path.stem)
    return path.parent.name if stem.isdecimal() or path.suffix == ".tar" else stem


def _files(corpus: CorpusPaths, options: Options, suffix: str) -> dict[str, list[Path]]:
    """The files of each split."""
    paths = [corpus.folder] if corpus.folder.is_file() else list(find_files(corpus.folder, suffix))
    splits: dict[str, list[Path]] = {}
    for path in paths:
        name = path.relative_to(corpus.folder).as_posix() if path != corpus.folder else path.name
        if path.name.lower().endswith(suffix) and _is_of(name, options):
            splits.setdefault(_split_of(PurePosixPath(path)), []).append(path)
    return splits


def _saved(folder: Path) -> dict[str, Path]:
    """The Arrow folders of a dataset, or of one of its splits."""
    listed, state = folder / "dataset_dict.json", folder / "state.json"
    try:
        if listed.exists():
            return {str(name): folder / name for name in parse_json(listed.read_text(encoding="utf-8"))["splits"]}
        if state.exists():
            return {parse_json(state.read_text(encoding="utf-8")).get("_split") or folder.name: folder}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder} is not a dataset as save_to_disk writes it. Save it again.") from error
    return {}


def _listed(folder: Path) -> list[Path]:
    """The Arrow files of a split. Other Arrow files in the folder are caches of `datasets`."""
    state = folder / "state.json"
    try:
        paths = [folder / each["filename"] for each in parse_json(state.read_text(encoding="utf-8"))["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{state} does not list the dataset's files. Save it again with save_to_disk.") from error
    for path in paths:
        if not path.is_file():
            raise DataError(f"{folder} is incomplete: {path.name} is missing. Copy or save it again.")
    return paths


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
    try:
        row = hub_row(name, str(path), fields, cell.classes, options.text)
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

    with explained(path, "Arrow"):
        file = pyarrow.memory_map(str(path))
        whole = file.read_buffer(file.size())
    for batch in batches_of(str(path), "Arrow", _arrow_batches(whole)):
        _require_column(path, batch.schema, options)
        others = batch.drop_columns([options.audio]).to_pylist()
        contents, paths = _contents_and_paths(batch.column(options.audio))
        places, classes = _byte_ranges(contents, whole.address), class_names(batch.schema)
        for number, fields in enumerate(others):
            first, end = places[number]
            content = bytes(whole[first:end]) if contents[number].is_valid else None
            yield fields, _Cell(content, paths[number], first, classes=classes)


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

    with explained(path, "Parquet"):
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    _require_column(path, file.schema_arrow, options)
    _require_readable(path, file.schema_arrow, options)
    classes = class_names(file.schema_arrow)
    batches = batches_of(str(path), "Parquet", file.iter_batches(ROWS))
    for number, fields in enumerate(row for batch in batches for row in batch.to_pylist()):
        audio = fields.pop(options.audio)
        audio = {"bytes": audio} if isinstance(audio, bytes) else audio or {}
        yield fields, _Cell(audio.get("bytes"), audio.get("path"), row=number, classes=classes)


def _require_column(path: Path, schema: Any, options: Options) -> None:
    from pyarrow import types

    choice = f"Set audio=COLUMN to one of {', '.join(schema.names)}."
    if options.audio not in schema.names:
        raise DataError(f"{path} has no column {options.audio!r}. {choice}")
    kind = schema.field(options.audio).type
    if not (types.is_struct(kind) or types.is_binary(kind) or types.is_large_binary(kind)):
        raise DataError(f"{path}: the column {options.audio!r} has {kind}, not audio. {choice}")


def _require_readable(path: Path, schema: Any, options: Options) -> None:
    """A manifest refers to rows, not columns, so audio of any other column than the reader's must be copied."""
    chosen = audio_column(schema)
    if not options.copy and chosen not in (None, options.audio):
        raise DataError(
            f"The rows of {path} are read from the column {chosen!r}, not from {options.audio!r}. "
            "Add copy=true, which writes each recording to its own file, and give another --to."
        )


CORPUS = Layout(read, Options, choose=choose)
