"""Shards and Parquet files in the place of a manifest: fetched once, and a manifest made of them in the cache.

Rows of tar files point into them. The recordings of Parquet files are copied into one file, since rows are read in any
order, and Parquet is decoded a row group at a time.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from attune.corpora._layout import Skipped
from attune.corpora._parquet import PARQUET, SHARDS, read_samples
from attune.corpora._rows import PROBLEM, write_row
from attune.corpora._shards import ShardSample, expand_shards, matching
from attune.corpora._transcripts import transcripts_address
from attune.errors import DataError
from attune.files import completed
from attune.sources import Cache, is_address, locate, locate_some

HUB = "hf://datasets/"
MANIFESTS = (".jsonl", ".csv", ".tsv")


def is_shards(source: str) -> bool:
    """Whether a recipe's manifest is shards: .tar or .parquet files, a prefix, or a split of a dataset on the Hub."""
    plain = source.partition("#")[0].lower()
    return plain.endswith(SHARDS) or (is_address(plain) and plain.endswith("/")) or _is_split(source)


def _is_split(source: str) -> bool:
    return source.startswith(HUB) and not source.partition("#")[0].lower().endswith(MANIFESTS)


def manifest_of_shards(source: str, cache: Cache) -> Path:
    """The manifest of shards, made when it is first asked for; it changes when they do."""
    shards = _fetch(source, cache)
    states = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in shards]
    folder = cache.folder.absolute() / "sets" / hashlib.sha256("\n".join(states).encode()).hexdigest()[:32]
    manifest = folder / f"{_name(source)}.jsonl"
    with cache.fetching(f"manifest {manifest}"):
        if not manifest.exists():
            _write(manifest, shards)
    return manifest


def _fetch(source: str, cache: Cache) -> list[Path]:
    """The shards on this machine, fetched through the cache, which verifies them and keeps to locked versions."""
    if not source.startswith(HUB):
        return [locate(shard, cache) for shard in expand_shards([source], SHARDS)]
    repository, path = _split_address(source)
    folder = locate_some(repository, lambda names: _wanted(source, path, names), cache, source)
    return sorted(each for each in folder.rglob("*") if each.name.endswith(SHARDS))


def _split_address(source: str) -> tuple[str, str]:
    """The repository, with its revision, and the path or pattern in it."""
    found = re.fullmatch(r"(hf://datasets/[^/]+/[^/@]+(?:@(?:refs/[^/]+/[^/]+|[^/]+))?)(?:/(.*))?", source)
    return (found[1], found[2] or "") if found else (source, "")


def _wanted(source: str, path: str, names: Sequence[str]) -> list[str]:
    """The shards that a pattern or prefix means, with the transcripts that lie apart from them."""
    shards = matching(path, [name for name in names if name.endswith(SHARDS)])
    if not shards:
        raise DataError(
            f"{source} matches no .tar or .parquet file of the dataset. It has: {', '.join(names[:12])}"
            f"{' …' if names[12:] else ''}."
        )
    apart = {address for shard in shards if (address := transcripts_address(shard))}
    return [*shards, *sorted(apart.intersection(names))]


def _name(source: str) -> str:
    """A name for the set in reports: that of its split."""
    last = source.partition("#")[0].rstrip("/").rpartition("/")[2]
    stem = re.sub(r"\.(tar|parquet)$", "", last, flags=re.IGNORECASE)
    return re.sub(r"[^\w.-]+", "", re.sub(r"[-_]?(\*|\{\d+\.\.\d+\}|\d+(-of-.*)?)$", "", stem)) or "set"


def _write(manifest: Path, shards: Sequence[Path]) -> None:
    """The manifest gets its name last."""
    recordings = manifest.with_suffix(".bin")
    with (
        completed(manifest) as rows,
        rows.open("w", encoding="utf-8") as out,
        completed(recordings) as partial,
        partial.open("wb") as file,
    ):
        for shard in shards:
            out.writelines(f"{_line(sample, recordings, file)}\n" for sample in read_samples(str(shard)))


def _line(sample: ShardSample, recordings: Path, file: BinaryIO) -> str:
    row = sample.found
    if isinstance(row, Skipped):
        return json.dumps({"id": row.which, PROBLEM: row.reason})
    if row.audio is not None and row.audio.endswith(PARQUET):
        row = replace(row, audio=str(recordings), first_byte=file.tell(), byte_count=len(sample.content))
        file.write(sample.content)
    return write_row(row)
