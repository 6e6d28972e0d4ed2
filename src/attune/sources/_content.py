"""Recordings that are no file of their own: a part of a shard, an address, a row of a Parquet file."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attune.errors import DataError, SourceError
from attune.sources._ranges import read_range, size_of
from attune.types import Utterance

THREADS = 16  # requests at once: reading over a network is mostly waiting
GROUPS = 2  # Parquet row groups kept decoded

_groups: OrderedDict[tuple[str, int], Any] = OrderedDict()


def content_of(utterance: Utterance) -> bytes | None:
    """The bytes of the recording; None where it is a whole file that can be opened."""
    if utterance.audio is None:
        return None
    try:
        if utterance.row is not None:
            return parquet_recording(Path(utterance.audio), utterance.row)
        if utterance.first_byte is not None and utterance.byte_count is not None:
            return read_range(str(utterance.audio), utterance.first_byte, utterance.byte_count)
        if isinstance(utterance.audio, str):
            return read_range(utterance.audio, 0, size_of(utterance.audio))
    except SourceError as error:
        raise DataError(str(error)) from error
    return None


def contents_of(utterances: Sequence[Utterance]) -> Iterator[Callable[[], bytes | None]]:
    """For each utterance in turn, a function that returns its recording; remote ones are requested together."""
    if not any(isinstance(utterance.audio, str) for utterance in utterances):
        yield from (lambda utterance=utterance: content_of(utterance) for utterance in utterances)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(content_of, utterance) for utterance in utterances]:
            yield future.result


def parquet_recording(path: Path, row: int) -> bytes:
    """The audio of one row: its row group is read, the audio column alone, and kept for the rows that follow."""
    group, first = _group_of(path, row)
    key = (str(path), group)
    if key not in _groups:
        _groups[key] = _read_group(path, group)
        while len(_groups) > GROUPS:
            _groups.popitem(last=False)
    _groups.move_to_end(key)
    column = _groups[key].column(0)
    value = column[row - first].as_py()
    recording = value.get("bytes") if isinstance(value, dict) else value
    if not recording:
        raise DataError(f"{path}: row {row} has no audio. Remove it, or download the file again.")
    return bytes(recording)


def _read_group(path: Path, group: int) -> Any:
    from pyarrow import ArrowException

    try:
        return _opened(str(path)).read_row_group(group, columns=[_audio_bytes(path)]).combine_chunks()
    except (OSError, ArrowException, MemoryError) as error:  # a damaged size is an allocation that fails
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is damaged in row group {group}: {reason}. Download it again.") from error


def _group_of(path: Path, row: int) -> tuple[int, int]:
    """The row group that holds a row, and that group's first row."""
    metadata = _opened(str(path)).metadata
    first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if row < first + rows:
            return group, first
        first += rows
    raise DataError(f"{path} has {first} rows, no row {row}. Run `attune prepare` again.")


def audio_column(schema: Any) -> str | None:
    """The column that recordings are read from: the first struct with `bytes`, as HF data sets have, or of bytes."""
    from pyarrow import types

    structs = [each.name for each in schema if types.is_struct(each.type) and each.type.get_field_index("bytes") >= 0]
    plain = [each.name for each in schema if types.is_binary(each.type) or types.is_large_binary(each.type)]
    return next(iter(structs + plain), None)


def _audio_bytes(path: Path) -> str:
    """What to read of a file for its recordings alone: not the paths beside them."""
    schema = _opened(str(path)).schema_arrow
    name = audio_column(schema)
    if name is None:
        raise DataError(f"{path} has no audio column; found {', '.join(schema.names)}.")
    return f"{name}.bytes" if schema.field(name).type.num_fields else name


_files: dict[str, Any] = {}


def _opened(path: str) -> Any:
    if path not in _files:
        try:
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            raise DataError("Parquet needs pyarrow. Run: pip install 'attune-speech[data]'") from error
        try:
            # Where pages have checksums, a flipped byte is found; elsewhere only if it breaks the encoding.
            _files[path] = pyarrow.parquet.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        except (OSError, pyarrow.ArrowException, MemoryError) as error:
            raise DataError(f"Cannot read {path} as Parquet: {error}") from error
    return _files[path]
