"""Transcripts that lie apart from their recordings, as Common Voice is published on the Hub.

`transcript/be/train.tsv` belongs to `audio/be/train/*.tar`: a line for each recording, by its file name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from attune.corpora._hub_rows import hub_row
from attune.corpora._rows import BadRow, Row
from attune.files import split_lines
from attune.sources import is_address, list_prefix, read_range, size_of

_SHARD = re.compile(r"(?P<root>.*/|)audio/(?P<split>.+)/[^/]+\.tar")


@dataclass(frozen=True, slots=True)
class Transcripts:
    """The lines of a TSV by the name of their recording; a line is split when it is needed."""

    name: str
    header: Sequence[str]
    lines: Mapping[str, str]

    def row_of(self, key: str, member: str) -> Row:
        """The row of a recording in a shard, or BadRow."""
        name = PurePosixPath(member).name
        line = self.lines.get(name)
        if line is None:
            raise BadRow(f"not in {self.name}")
        cells = _cells(line)
        fields = {column: cell for column, cell in zip(self.header, cells, strict=False) if cell}
        return hub_row(PurePosixPath(name).stem, key, fields, {}, None)


def transcripts_address(shard: str) -> str | None:
    """Where the transcripts of a shard would be; None for a shard in another layout."""
    found = _SHARD.fullmatch(shard)
    return f"{found['root']}transcript/{found['split']}.tsv" if found else None


def transcripts_of(shard: str) -> Transcripts | None:
    """The transcripts of a shard, if they lie apart."""
    address = transcripts_address(shard)
    return _read(address) if address else None


def read_if_there(address: str) -> bytes | None:
    """A file beside shards, here or at an address."""
    if is_address(address):
        return read_range(address, 0, size_of(address)) if address in (list_prefix(address) or ()) else None
    return Path(address).read_bytes() if Path(address).is_file() else None


@lru_cache(maxsize=2)
def _read(address: str) -> Transcripts | None:
    content = read_if_there(address)
    if content is None:
        return None
    lines = split_lines(content.decode("utf-8-sig", errors="replace"))
    header = _cells(lines[0]) if lines else []
    if "path" not in header:
        return None
    column = header.index("path")
    named = {PurePosixPath(cells[column]).name: line for line in lines[1:] if len(cells := _cells(line)) > column}
    return Transcripts(PurePosixPath(address).name, header, named)


def _cells(line: str) -> list[str]:
    return line.rstrip("\r").split("\t")
