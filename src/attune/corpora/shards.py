"""Tar shards of recordings with JSON or text beside each, in a folder, in S3 or on the web: indexed, not copied."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import Found, Layout, Place
from attune.corpora._shards import expand, samples_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the index is called."""

    split: Annotated[str, Field(pattern=r"[\w-]+", description="The name of the manifest.")] = "train"


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """One split; `--from` may be a folder, a glob, `…{000..127}.tar`, or `s3://bucket/prefix/`."""
    return {options.split: _rows(place.source)}


def _rows(source: str) -> Iterator[Found]:
    for shard in expand([source]):
        for sample in samples_of(shard):
            yield sample.found


CORPUS = Layout(read, Options, takes_addresses=True)
