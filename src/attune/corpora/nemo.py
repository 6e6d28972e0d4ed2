"""NeMo manifests: JSON lines with audio_filepath, duration, text and maybe offset; a file, or a folder of them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.audio.decode import SLACK_SECONDS
from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped, count_lines
from attune.corpora._manifest_rows import manifest_rows, split_files
from attune.corpora._scan import CHUNK, THREADS, recording_seconds
from attune.errors import DataError
from attune.sources import is_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the audio is."""

    root: Annotated[
        str | None, Field(description="Folder that audio paths are relative to (default: the manifest's).")
    ] = None


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """A split for each manifest, by its name."""
    return {
        name: _rows(path, Path(options.root) if options.root else path.parent)
        for name, path in split_files(corpus, ".json", ".jsonl").items()
    }


def _rows(path: Path, root: Path) -> Iterator[RowOrSkipped]:
    rows = manifest_rows(path, root)
    with ThreadPoolExecutor(THREADS) as pool:
        while chunk := list(islice(rows, CHUNK)):
            yield from pool.map(_as_nemo_reads_it, chunk)


def _as_nemo_reads_it(row: RowOrSkipped) -> RowOrSkipped:
    """Without an offset, NeMo reads the first `duration` seconds (or what there is), not the whole file."""
    if isinstance(row, Skipped) or row.audio is None or row.start is not None or row.seconds is None:
        return row
    if is_address(row.audio):  # measuring it would download it
        return replace(row, start=0.0)
    try:
        whole = recording_seconds(row, row.audio)
    except DataError:
        return replace(row, seconds=None)  # measured again later, and skipped with the reason
    if whole - row.seconds > SLACK_SECONDS:
        return replace(row, start=0.0)
    return replace(row, seconds=whole)


def count(corpus: CorpusPaths, options: Options) -> int:
    """The lines of all manifests."""
    return count_lines(split_files(corpus, ".json", ".jsonl").values())


CORPUS = Layout(read, Options, count=count)
