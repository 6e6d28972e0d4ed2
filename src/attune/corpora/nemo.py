"""NeMo manifests: JSON lines with audio_filepath, duration, text and maybe offset; a file, or a folder of them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.audio.decode import SLACK_SECONDS
from attune.corpora._layout import Found, Layout, Place, Skipped
from attune.corpora._manifests import files_of, rows_of_manifest
from attune.corpora._scan import CHUNK, THREADS, measure
from attune.errors import DataError
from attune.sources import is_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the audio is."""

    root: Annotated[str | None, Field(description="What audio paths are relative to; otherwise the manifest.")] = None


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """A split for each manifest, by its name."""
    return {
        name: _rows(path, Path(options.root) if options.root else path.parent)
        for name, path in files_of(place, ".json", ".jsonl").items()
    }


def _rows(path: Path, root: Path) -> Iterator[Found]:
    rows = rows_of_manifest(path, root)
    with ThreadPoolExecutor(THREADS) as pool:
        while chunk := list(islice(rows, CHUNK)):
            yield from pool.map(_as_nemo_hears_it, chunk)


def _as_nemo_hears_it(row: Found) -> Found:
    """Without an offset, `duration` seconds from the beginning or what there is of them, and not the whole file."""
    if isinstance(row, Skipped) or row.audio is None or row.start is not None or row.seconds is None:
        return row
    if is_address(row.audio):  # its length would cost all of it
        return replace(row, start=0.0)
    try:
        whole = measure(row, row.audio)
    except DataError:
        return replace(row, seconds=None)  # to be measured again, and left out with the reason
    if whole - row.seconds > SLACK_SECONDS:
        return replace(row, start=0.0)
    return replace(row, seconds=whole)


CORPUS = Layout(read, Options)
