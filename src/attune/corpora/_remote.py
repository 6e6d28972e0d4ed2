"""Remote manifests: downloaded with the audio they name, in the same folder structure."""

from collections.abc import Iterator
from os import devnull
from pathlib import Path

from attune.corpora._lines import Line, jsonl_lines, table_lines
from attune.corpora._rows import BadRow, read_row
from attune.corpora._sets import is_shards, manifest_of_shards
from attune.errors import DataError, SourceError
from attune.sources import Cache, is_address, is_remote, locate, locate_beside, require_inside, shown


def fetch_manifest(source: str, cache: Cache) -> Path:
    """The local path of a manifest; a remote one is downloaded into the cache with its audio.

    A remote manifest must not refer to files outside its folder: audio paths with `..`, absolute paths and URLs
    elsewhere are refused. Audio URLs below the folder's own URL are read in place, as shards are. Shards and Parquet
    files, too, are a manifest: they are fetched, and one is made of them.
    """
    if is_shards(source):
        return manifest_of_shards(source, cache)
    path = locate(source, cache)
    if not is_remote(source) or path.is_dir():
        return path
    names = list(dict.fromkeys(_audio_names(path, source)))
    return locate_beside(source, names, cache) / path.name if names else path


def _audio_names(path: Path, source: str) -> Iterator[str]:
    for line in _lines(path):
        try:
            audio = None if line.problem else read_row(line.content).audio
        except BadRow:  # the scan reports it
            continue
        if audio and not _is_read_there(audio, source):
            try:
                yield require_inside(audio, f"{shown(source)}:{line.number}").as_posix()
            except SourceError as error:
                raise DataError(f"{error} Audio of a remote manifest must be below its folder.") from error


def _is_read_there(audio: str, source: str) -> bool:
    folder = source.partition("#")[0].rpartition("/")[0] + "/"
    return is_address(audio) and audio.startswith(folder) and ".." not in audio.split("/")


def _lines(path: Path) -> Iterator[Line]:
    if path.suffix.lower() not in (".csv", ".tsv"):
        yield from jsonl_lines(path)
        return
    with Path(devnull).open("wb") as nowhere:
        yield from table_lines(path, nowhere)
