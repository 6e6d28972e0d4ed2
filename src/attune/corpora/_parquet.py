"""Parquet files of recordings as shards: read in place, from any row on, a row group at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from attune.audio.decode import audio_seconds
from attune.corpora._hub_rows import BATCH, batches_of, class_names, explained, hub_row, require_arrow
from attune.corpora._layout import Skipped
from attune.corpora._rows import BadRow
from attune.corpora._shards import RangeFile, ShardSample, read_shard
from attune.errors import DataError
from attune.sources import audio_column, shown

AUDIO = "audio"
PARQUET = ".parquet"
SHARDS = (".tar", PARQUET)


def read_samples(shard: str, start: int = 0) -> Iterator[ShardSample]:
    """The samples of a tar or Parquet file from `start` on: a byte of a tar, a row of a Parquet file."""
    return read_parquet(shard, start) if shard.lower().endswith(PARQUET) else read_shard(shard, start)


def read_parquet(shard: str, start: int = 0) -> Iterator[ShardSample]:
    """The rows of a Parquet file with their recordings; `end` of a sample is the number of the next row."""
    require_arrow()
    import pyarrow.parquet

    name = shown(shard)
    with RangeFile(shard, 0) as file:
        with explained(name, "Parquet"):
            parquet = pyarrow.parquet.ParquetFile(
                pyarrow.PythonFile(file, mode="r"), page_checksum_verification=True, pre_buffer=False
            )
        column = _audio_column(name, parquet.schema_arrow)
        classes = class_names(parquet.schema_arrow)
        for number, fields in _records(name, parquet, column, start):
            recording = fields.pop(column) or {}
            content = recording.get("bytes") if isinstance(recording, dict) else recording
            yield _sample(shard, number, fields, bytes(content or b""), classes)


def _audio_column(shard: str, schema: Any) -> str:
    """The column named audio, if it has recordings, or else the first that has."""
    named = schema.field(AUDIO).type if AUDIO in schema.names else None
    if named is not None and (named.num_fields and named.get_field_index("bytes") >= 0):
        return AUDIO
    found = audio_column(schema)
    if found is None:
        raise DataError(f"{shard} has no column with recordings; found {', '.join(schema.names)}.")
    return found


def _records(shard: str, parquet: Any, column: str, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and fields of each row from `start` on; row groups before it are not read, nor other recordings."""
    others = [each.name for each in parquet.schema_arrow if not _is_heavy(each.type)]
    first = 0
    for group in range(parquet.metadata.num_row_groups):
        after = first + parquet.metadata.row_group(group).num_rows
        if after > start:
            batches = parquet.iter_batches(BATCH, row_groups=[group], columns=[column, *others], use_threads=False)
            rows = (row for batch in batches_of(shard, "Parquet", batches) for row in batch.to_pylist())
            yield from ((number, row) for number, row in enumerate(rows, first) if number >= start)
        first = after


def _is_heavy(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_struct(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def _sample(
    shard: str, number: int, fields: dict[str, Any], content: bytes, classes: Mapping[str, Sequence[str]]
) -> ShardSample:
    path = PurePosixPath(shard.partition("#")[0])
    id = f"{path.parent.name}/{path.stem}/{number:06d}"
    where = f"{shown(shard)}: row {number}"
    if not content:
        return ShardSample(Skipped(where, "no audio"), number + 1)
    try:
        row = hub_row(id, shard, fields, classes, None)
        seconds = row.seconds or audio_seconds("the recording", content)
        return ShardSample(replace(row, seconds=seconds), number + 1, content)
    except (BadRow, DataError) as error:
        return ShardSample(Skipped(where, str(error)), number + 1)
