"""A plain folder: every recording with its text beside it, in a .txt or .lab file of the same name."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import AUDIO_FILES, Found, Layout, Place, Skipped, files_below
from attune.corpora._rows import Row
from attune.errors import DataError

SPLITS = ("train", "dev", "valid", "test")
TEXTS = (".txt", ".lab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What else the folders say."""

    speaker_from_folder: Annotated[bool, Field(description="The folder of a recording names its speaker.")] = False
    text: Annotated[bool, Field(description="Whether a recording without a text is left out.")] = True
    language: str | None = None


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """The folders train, dev, valid and test where there are such; otherwise all of it as one split, `all`."""
    if not place.folder.is_dir():
        raise DataError(f"{place.source} is not a folder.")
    splits = {name: place.folder / name for name in SPLITS if (place.folder / name).is_dir()} or {"all": place.folder}
    return {name: _rows(place.folder, folder, options) for name, folder in splits.items()}


def _rows(root: Path, folder: Path, options: Options) -> Iterator[Found]:
    for audio in files_below(folder, *AUDIO_FILES):
        name = audio.relative_to(root).as_posix()
        beside = next((path for suffix in TEXTS if (path := audio.with_suffix(suffix)).is_file()), None)
        if beside is None and options.text:
            yield Skipped(name, "no .txt or .lab beside it")
            continue
        try:
            text = " ".join(beside.read_text(encoding="utf-8-sig").split()) if beside else None
        except UnicodeDecodeError:
            yield Skipped(name, "a text that is not UTF-8")
            continue
        speaker = audio.parent.name if options.speaker_from_folder else None
        yield Row(name.rpartition(".")[0], str(audio), text=text, speaker=speaker, language=options.language)


CORPUS = Layout(read, Options)
