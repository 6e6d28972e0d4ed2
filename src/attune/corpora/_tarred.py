"""NeMo's tarred data sets: shards of recordings alone, and one manifest beside them with a line for each recording.

`audio_0.tar … audio_511.tar` and `tarred_audio_manifest.json`, a folder for each bucket. A recording is found by its
file's name without the ending.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from attune.corpora._rows import NAMES, BadRow, Row, read_row
from attune.corpora._transcripts import read_if_there
from attune.errors import DataError
from attune.files import parse_json

MANIFEST = "tarred_audio_manifest.json"
REPEATED = b""  # instead of the lines of a recording that has several
BUCKETS = 16  # whose manifests are kept
PLACES = (*NAMES["audio"], "shard_id")  # where a recording was, and is


@dataclass(frozen=True, slots=True)
class TarredManifest:
    """The lines of a manifest by the name of their recording; a line is read when it is needed."""

    lines: Mapping[str, bytes]

    def row_of(self, key: str, member: str) -> Row:
        """The row of a recording in a shard, or BadRow."""
        line = self.lines.get(PurePosixPath(member).stem)
        if line is None:
            raise BadRow(f"not in {MANIFEST}")
        if line == REPEATED:
            raise BadRow(f"several lines of {MANIFEST} have it. Tar the segments of a recording apart")
        fields = {name: value for name, value in parse_json(line).items() if name not in PLACES}
        return read_row(json.dumps({"id": key, "audio": key, **fields}).encode())


def manifest_of(shard: str) -> TarredManifest | None:
    """The manifest beside a shard, if there is one."""
    return _read(f"{shard.rpartition('/')[0]}/{MANIFEST}")


@lru_cache(maxsize=BUCKETS)
def _read(address: str) -> TarredManifest | None:
    content = read_if_there(address)
    if content is None:
        return None
    lines: dict[str, bytes] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            name = _recording(line, address, number)
            lines[name] = REPEATED if name in lines else line
    return TarredManifest(lines)


def _recording(line: bytes, address: str, number: int) -> str:
    try:
        return PurePosixPath(parse_json(line)["audio_filepath"]).stem
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f'{address}:{number} is not a JSON object with "audio_filepath".') from error
