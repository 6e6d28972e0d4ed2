"""A folder of recordings, each with its transcript in a .txt or .lab file of the same name."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import AUDIO_FILES, CorpusPaths, Layout, RowOrSkipped, Skipped, find_files
from attune.corpora._rows import Row
from attune.errors import DataError

SPLITS = ("train", "dev", "valid", "test")
TEXTS = (".txt", ".lab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the folders are read."""

    speaker_from_folder: Annotated[bool, Field(description="Use the name of a recording's folder as its speaker.")] = (
        False
    )
    text: Annotated[bool, Field(description="Skip recordings without a transcript.")] = True
    language: str | None = None


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The folders train, dev, valid and test, if there are any; otherwise everything as one split, `all`."""
    if not corpus.folder.is_dir():
        raise DataError(f"{corpus.source} is not a folder. Give --from a folder of recordings.")
    splits = {name: corpus.folder / name for name in SPLITS if (corpus.folder / name).is_dir()} or {
        "all": corpus.folder
    }
    return {name: _rows(corpus.folder, folder, options) for name, folder in splits.items()}


def _rows(root: Path, folder: Path, options: Options) -> Iterator[RowOrSkipped]:
    for audio in find_files(folder, *AUDIO_FILES):
        name = audio.relative_to(root).as_posix()
        beside = next((path for suffix in TEXTS if (path := audio.with_suffix(suffix)).is_file()), None)
        if beside is None and options.text:
            yield Skipped(name, "no .txt or .lab file")
            continue
        try:
            text = " ".join(beside.read_text(encoding="utf-8-sig").split()) if beside else None
        except UnicodeDecodeError:
            yield Skipped(name, "text is not UTF-8")
            continue
        speaker = audio.parent.name if options.speaker_from_folder else None
        yield Row(name.rpartition(".")[0], str(audio), text=text, speaker=speaker, language=options.language)


CORPUS = Layout(read, Options)
