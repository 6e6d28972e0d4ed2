"""NeMo manifests: JSON lines with audio_filepath, duration, text and maybe offset; a file, or a folder of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import Found, Layout, Place
from attune.corpora._manifests import files_of, rows_of_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the audio is."""

    root: Annotated[str | None, Field(description="What audio paths are relative to; otherwise the manifest.")] = None


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """A split for each manifest, by its name."""
    return {
        name: rows_of_manifest(path, Path(options.root) if options.root else path.parent)
        for name, path in files_of(place, ".json", ".jsonl").items()
    }


CORPUS = Layout(read, Options)
