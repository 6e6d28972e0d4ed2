"""Manifests that are far away: fetched, and the audio they name with them, so that they lie here as they lie there."""

from collections.abc import Iterator
from os import devnull
from pathlib import Path

from attune.corpora._lines import Line, jsonl_lines, table_lines
from attune.corpora._rows import BadRow, read_row
from attune.errors import DataError, SourceError
from attune.sources import Cache, is_address, is_remote, locate, locate_beside, require_inside, shown


def bring_manifest(source: str, cache: Cache) -> Path:
    """A manifest on this machine; a far-away one lies beside its audio, fetched into the cache.

    What others wrote must not reach beyond its folder: audio paths with `..`, a root or another place's address are
    refused. Audio under the folder's own address is read there, as shards are, and not fetched.
    """
    path = locate(source, cache)
    if not is_remote(source) or path.is_dir():
        return path
    names = list(dict.fromkeys(_audio_names(path, source)))
    return locate_beside(source, names, cache) / path.name if names else path


def _audio_names(path: Path, source: str) -> Iterator[str]:
    for line in _lines(path):
        try:
            audio = None if line.fault else read_row(line.content).audio
        except BadRow:  # the scan tells
            continue
        if audio and not _is_read_there(audio, source):
            try:
                yield require_inside(audio, f"{shown(source)}:{line.number}").as_posix()
            except SourceError as error:
                raise DataError(f"{error} A manifest that is fetched names audio below its own folder.") from error


def _is_read_there(audio: str, source: str) -> bool:
    folder = source.partition("#")[0].rpartition("/")[0] + "/"
    return is_address(audio) and audio.startswith(folder) and ".." not in audio.split("/")


def _lines(path: Path) -> Iterator[Line]:
    if path.suffix.lower() not in (".csv", ".tsv"):
        yield from jsonl_lines(path)
        return
    with Path(devnull).open("wb") as nowhere:
        yield from table_lines(path, nowhere)
