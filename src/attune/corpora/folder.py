"""A folder of recordings, each with its transcript in a .txt or .lab file of the same name."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import AUDIO_FILES, CorpusPaths, Layout, RowOrSkipped, Skipped, find_files
from attune.corpora._ratios import Share, SplitBy, cut_by_ratio
from attune.corpora._rows import Row
from attune.errors import DataError

SPLITS = ("train", "dev", "valid", "validation", "test")
TEXTS = (".txt", ".lab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the folders are read."""

    speaker_from_folder: Annotated[bool, Field(description="Use the name of a recording's folder as its speaker.")] = (
        False
    )
    text: Annotated[bool, Field(description="Skip recordings without a transcript.")] = True
    language: Annotated[str | None, Field(description="The language of all recordings.")] = None
    dev: Annotated[Share, Field(description="Share of the rows for dev, cut by speaker, e.g. 0.1.")] = 0.0
    test: Annotated[Share, Field(description="Share of the rows for test, cut by speaker.")] = 0.0
    split_by: Annotated[
        SplitBy | None, Field(description="Keep speakers or recordings apart (default: speakers where known).")
    ] = None


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The folders that are named like splits, if there are any; otherwise everything as one split, `all`."""
    if not corpus.folder.is_dir():
        raise DataError(f"{corpus.source} is not a folder. Give --from a folder of recordings.")
    splits = {name: corpus.folder / name for name in SPLITS if (corpus.folder / name).is_dir()} or {
        "all": corpus.folder
    }
    if not (options.dev or options.test):
        return {name: _rows(corpus.folder, folder, options) for name, folder in splits.items()}
    if len(splits) > 1:
        raise DataError(f"{corpus.source} has the splits {', '.join(splits)}. Leave out dev= and test=.")
    (folder,) = splits.values()
    read_rows = partial(_rows, corpus.folder, folder, options)
    return cut_by_ratio(read_rows, {"test": options.test, "dev": options.dev}, options.split_by)


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
