"""Tar shards (WebDataset layout): a sample is consecutive members whose names are equal up to the first dot.

`0001.flac 0001.json` or `0001.wav 0001.txt`, one sample after another. Or recordings alone, as Common Voice is
published: lines of transcript/LANGUAGE/SPLIT.tsv belong to the files in audio/LANGUAGE/SPLIT/*.tar; or as NeMo tars
them, with a manifest beside the shards. A shard is read from any sample on, in pieces that are prefetched, from a file
or any source with byte ranges; nothing is ever unpacked.
"""

import glob
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attune.audio.decode import audio_seconds
from attune.corpora._layout import AUDIO_FILES, Skipped
from attune.corpora._rows import BadRow, Row, read_row, validate_row
from attune.corpora._tarred import TarredManifest, manifest_of
from attune.corpora._transcripts import Transcripts, transcripts_of
from attune.errors import DataError
from attune.files import parse_json
from attune.sources import TarHeader, is_address, list_prefix, read_range, require_size, shown, size_of

PIECE = 1 << 22  # bytes of a request
AHEAD = 4  # pieces requested before they are needed
LARGEST = 1 << 30  # bytes of a member that could be an utterance
BLOCK = 512
RANGE = re.compile(r"(?:\{|_OP_)(\d+)\.\.(\d+)(?:\}|_CL_)")
TEXTS = (".txt", ".lab")


@dataclass(frozen=True, slots=True)
class ShardSample:
    """One sample of a shard. `end` is the byte at which the next sample begins."""

    found: Row | Skipped
    end: int
    content: bytes = b""  # the recording


def read_shard(shard: str, start: int = 0) -> Iterator[ShardSample]:
    """The samples of a shard from the one that begins at byte `start`."""
    transcripts = transcripts_of(shard) or manifest_of(shard)
    with RangeFile(shard, start) as file:
        for key, members, end in _grouped(_members(shard, file)):
            yield _sample(shard, key, members, end, file, transcripts)


def expand_shards(sources: Sequence[str], suffixes: tuple[str, ...] = (".tar",)) -> tuple[str, ...]:
    """The shards that folders, globs, `{000..127}` and prefixes such as `s3://bucket/prefix/` name, in their order.

    NeMo writes `_OP_000..127_CL_` for braces.
    """
    found = [shard for source in sources for braced in _braces(source) for shard in _expand(braced, suffixes)]
    if len(set(found)) < len(found):
        raise DataError(f"A shard is named twice in {', '.join(sources)}. Name it once.")
    return tuple(found)


def _braces(source: str) -> Iterator[str]:
    match = RANGE.search(source)
    if match is None:
        yield source
        return
    first, last = match.groups()
    if int(last) < int(first):
        raise DataError(f"{match[0]} in {shown(source)} runs backward. Put the smaller number first.")
    for number in range(int(first), int(last) + 1):
        yield from _braces(f"{source[: match.start()]}{number:0{len(first)}d}{source[match.end() :]}")


def _expand(source: str, suffixes: tuple[str, ...]) -> list[str]:
    if is_address(source):
        found = _addresses(source, suffixes)
    elif Path(source).is_dir():
        found = [str(path.absolute()) for path in sorted(Path(source).iterdir()) if path.name.endswith(suffixes)]
    else:
        found = sorted(str(Path(path).absolute()) for path in glob.glob(source))  # noqa: PTH207  # absolute patterns too
    if not found:
        raise DataError(
            f"{shown(source)} matches no shard. Expected {' or '.join(suffixes)} files, not compressed; "
            "of a dataset on the Hub, a pattern such as hf://datasets/ORG/NAME/CONFIG/train-*.parquet."
        )
    return found


def _addresses(source: str, suffixes: tuple[str, ...]) -> list[str]:
    """The address itself, or the shards below it where its source can list them."""
    if source.endswith(suffixes) and "*" not in source:
        return [source]
    listed = list_prefix(source.partition("*")[0])
    return [source] if listed is None else matching(source, [each for each in listed if each.endswith(suffixes)])


def matching(source: str, names: Sequence[str]) -> list[str]:
    """Those names that a pattern or a prefix means: `be/train` is train-00000-of-00009 rather than train_extra."""
    if "*" in source:
        return [name for name in names if fnmatchcase(name, source)]
    below = [name for name in names if name.startswith(source)]
    split = [name for name in below if source.endswith("/") or name[len(source) : len(source) + 1] in ("/", "-", ".")]
    return split or below


def _members(shard: str, file: "RangeFile") -> Iterator[tuple[int, tarfile.TarInfo]]:
    """Each regular file of the archive, with the byte at which its headers begin."""
    try:
        with tarfile.open(fileobj=file, mode="r:", tarinfo=TarHeader) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it would remember every one
                if require_size(member).offset_data + member.size > file.size:
                    raise DataError(f"{shown(shard)} is truncated in the member {member.name!r}. Download it again.")
                if member.isreg():
                    yield member.offset, member
            file.seek(archive.offset)
            if any(file.read(BLOCK)):  # tarfile takes a damaged header for the end
                raise DataError(f"{shown(shard)} is damaged at byte {archive.offset}. Download it again.")
    except tarfile.TarError as error:
        raise DataError(f"{shown(shard)} is not an uncompressed tar file, or is damaged: {error}") from error


def _grouped(
    members: Iterator[tuple[int, tarfile.TarInfo]],
) -> Iterator[tuple[str, dict[str, tarfile.TarInfo], int]]:
    key, group, end = "", dict[str, tarfile.TarInfo](), 0
    for begin, member in members:
        folder, _, name = member.name.rpartition("/")
        stem, dot, rest = name.partition(".")
        own = f"{folder}/{stem}" if folder else stem
        if group and own != key:
            yield key, group, begin
            group = {}
        key, end = own, member.offset_data + -(-member.size // BLOCK) * BLOCK
        group[f"{dot}{rest}".lower()] = member
    if group:
        yield key, group, end


def _sample(
    shard: str,
    key: str,
    members: Mapping[str, tarfile.TarInfo],
    end: int,
    file: "RangeFile",
    transcripts: Transcripts | TarredManifest | None,
) -> ShardSample:
    audio = next((member for suffix, member in members.items() if suffix.endswith(AUDIO_FILES)), None)
    if audio is None or not 0 < audio.size <= LARGEST:
        return ShardSample(Skipped(f"{shown(shard)}: {key}", "no recording in the sample"), end)
    content = file.read_at(audio.offset_data, audio.size)
    try:
        notes = {suffix: file.read_at(each.offset_data, each.size) for suffix, each in _notes(members)}
        row = transcripts.row_of(key, audio.name) if transcripts else _row(key, notes)
        row = replace(row, audio=shard, first_byte=audio.offset_data, byte_count=audio.size)
        if row.seconds is None:
            row = replace(row, seconds=audio_seconds("the recording", content))
        return ShardSample(validate_row(row), end, content)
    except (BadRow, DataError) as error:
        return ShardSample(Skipped(f"{shown(shard)}: {key}", str(error)), end)


def _notes(members: Mapping[str, tarfile.TarInfo]) -> list[tuple[str, tarfile.TarInfo]]:
    return [
        (suffix, each) for suffix, each in members.items() if suffix.endswith((".json", *TEXTS)) and each.size < PIECE
    ]


def _row(key: str, notes: Mapping[str, bytes]) -> Row:
    """The row of a sample's JSON and text; an id in the JSON replaces the key."""
    fields: dict[str, Any] = {}
    for suffix, note in notes.items():
        if suffix.endswith(".json"):
            fields |= _object(note)
        else:
            fields["text"] = _text(suffix, note)
    # Where the recording was before it was put into the shard does not matter.
    fields = {name: value for name, value in fields.items() if name not in ("audio", "audio_filepath", "path", "wav")}
    return read_row(json.dumps({"id": key, "audio": key, **fields}).encode())


def _text(suffix: str, note: bytes) -> str:
    try:
        return note.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise BadRow(f"its {suffix} is not UTF-8 text") from error


def _object(note: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(note)
    except ValueError as error:
        raise BadRow(f"its .json is not JSON: {error}") from error
    return fields if isinstance(fields, dict) else {}


class RangeFile(io.RawIOBase):
    """A shard as a file object that is mostly read forward: pieces are prefetched, and few are kept."""

    def __init__(self, address: str, start: int) -> None:
        self.address = address
        self.size = size_of(address) if is_address(address) or Path(address).is_file() else _missing(address)
        self._position = start
        self._pieces: dict[int, Future[bytes]] = {}
        self._pool = ThreadPoolExecutor(AHEAD)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self.size)[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self.size if size is None or size < 0 else min(self.size, self._position + size)
        content = self.read_at(self._position, max(0, end - self._position))
        self._position += len(content)
        return content

    def read_at(self, start: int, length: int) -> bytes:
        """Bytes at any offset, without moving the file position."""
        parts = []
        end = min(start + length, self.size)
        while start < end:
            number, skip = divmod(start, PIECE)
            part = self._piece(number)[skip : skip + end - start]
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def close(self) -> None:
        if not self.closed:
            self._pool.shutdown(cancel_futures=True)
            self._pieces.clear()
        super().close()

    def _piece(self, number: int) -> bytes:
        wanted = range(number, min(number + 1 + AHEAD, -(-self.size // PIECE)))
        # A sample's notes may lie a piece before its recording; older ones are done with.
        for old in [each for each in self._pieces if not number - 1 <= each < wanted.stop]:
            self._pieces.pop(old).cancel()
        for each in wanted:
            if each not in self._pieces:
                first = each * PIECE
                self._pieces[each] = self._pool.submit(read_range, self.address, first, min(PIECE, self.size - first))
        return self._pieces[number].result()


def _missing(address: str) -> int:
    raise DataError(f"Shard {shown(address)} does not exist. Check the path.")
