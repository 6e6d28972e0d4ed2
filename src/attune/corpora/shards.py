"""Tar shards (WebDataset) of recordings with JSON or text, in a folder, in S3 or on the web: indexed, not copied."""

import hashlib
import json
import shutil
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._changes import file_stamp
from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped
from attune.corpora._rows import Row
from attune.corpora._shards import expand_shards, read_shard
from attune.errors import DataError
from attune.files import completed, parse_json
from attune.secrets import has_secrets, shown
from attune.sources import is_address

TOGETHER = 4  # shards read in parallel: reading over a network is mostly waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The name of the split."""

    split: Annotated[str, Field(pattern=r"^[\w-]+$", description="The name of the manifest.")] = "train"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """One split; `--from` may be a folder, a glob, `…{000..127}.tar`, or `s3://bucket/prefix/`."""
    _require_no_secret(corpus.source)
    return {options.split: _rows(corpus.source, corpus.to / f".{options.split}.shards")}


def _require_no_secret(source: str) -> None:
    """Manifests are shared, and a signed URL gives access; besides, it expires."""
    if has_secrets(source):
        raise DataError(
            f"The URL {shown(source)} has a signature, a password or a query value that may be one, "
            "which would be written into every row. Give s3://BUCKET/KEY with AWS_* variables, "
            "or download the shards and give their folder."
        )


def _rows(source: str, folder: Path) -> Iterator[RowOrSkipped]:
    """The rows of every shard; shards that were read before an interruption are not read again."""
    shards = iter(expand_shards([source]))
    reading: deque[Future[Path]] = deque()
    with ThreadPoolExecutor(TOGETHER) as pool:
        try:
            while True:
                while len(reading) < 2 * TOGETHER and (shard := next(shards, None)):
                    reading.append(pool.submit(_listed, shard, folder))
                if not reading:
                    break
                yield from _rows_in(reading.popleft().result())
        finally:
            pool.shutdown(cancel_futures=True)
    shutil.rmtree(folder, ignore_errors=True)


def _listed(shard: str, folder: Path) -> Path:
    """A file with the rows of a shard as it is now."""
    stamp = "" if is_address(shard) else file_stamp(Path(shard))
    path = folder / f"{hashlib.sha256(f'{shard} {stamp}'.encode()).hexdigest()[:24]}.jsonl"
    if not path.exists():
        with completed(path) as partial, partial.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(sample.found)) + "\n" for sample in read_shard(shard))
    return path


def _rows_in(path: Path) -> Iterator[RowOrSkipped]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            fields = parse_json(line)
            yield Skipped(**fields) if "reason" in fields else Row(**fields)


CORPUS = Layout(read, Options, takes_addresses=True)
