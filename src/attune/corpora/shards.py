"""Tar shards of recordings with JSON or text beside each, in a folder, in S3 or on the web: indexed, not copied."""

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

from attune.corpora._layout import Found, Layout, Place, Skipped
from attune.corpora._rows import Row
from attune.corpora._shards import expand, samples_of
from attune.errors import DataError
from attune.files import completed
from attune.secrets import has_secrets, shown

TOGETHER = 4  # shards read at once: reading over a network is mostly waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the index is called."""

    split: Annotated[str, Field(pattern=r"^[\w-]+$", description="The name of the manifest.")] = "train"


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """One split; `--from` may be a folder, a glob, `…{000..127}.tar`, or `s3://bucket/prefix/`."""
    _require_no_secret(place.source)
    return {options.split: _rows(place.source, place.to / f".{options.split}.shards")}


def _require_no_secret(source: str) -> None:
    """A manifest is handed on, and a signed address is a key; besides, it soon opens nothing."""
    if has_secrets(source):
        raise DataError(
            f"The address of {shown(source)} has a signature or password in it, which would be written into every row. "
            "Give s3://BUCKET/KEY with AWS_* variables, or fetch the shards and give their folder."
        )


def _rows(source: str, folder: Path) -> Iterator[Found]:
    """The rows of every shard; those of a shard that was read before an interruption are not read again."""
    shards = iter(expand([source]))
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
    """A file with the rows of a shard."""
    path = folder / f"{hashlib.sha256(shard.encode()).hexdigest()[:24]}.jsonl"
    if not path.exists():
        with completed(path) as partial, partial.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(sample.found)) + "\n" for sample in samples_of(shard))
    return path


def _rows_in(path: Path) -> Iterator[Found]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            fields = json.loads(line)
            yield Skipped(**fields) if "reason" in fields else Row(**fields)


CORPUS = Layout(read, Options, takes_addresses=True)
