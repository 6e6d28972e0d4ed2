"""What LibriSpeech and corpora in its layout share: SET/SPEAKER/CHAPTER/*.trans.txt beside the recordings."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from attune.corpora._layout import CorpusPaths, Layout, NoOptions, RowOrSkipped, find_files, first_existing, read_fields
from attune.corpora._rows import Row


def librispeech_layout(*sets: str) -> Layout:
    """The layout of a corpus with these sets; absent ones are skipped."""
    return Layout(partial(_read, sets), speakers_apart=True)


def _read(sets: tuple[str, ...], corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    # An archive of one set has nothing beside it, so what was unpacked may be taken for the set or a part of it.
    within = [folder for folder in (corpus.folder, *corpus.folder.parents) if folder.name in sets]
    root = within[0].parent if within else first_existing(corpus, "LibriSpeech", ".")
    first_existing(CorpusPaths(str(root), corpus.to), *sets)  # at least one must be there
    return {name: _rows(root / name) for name in sets if (root / name).is_dir()}


def _rows(folder: Path) -> Iterator[RowOrSkipped]:
    for transcripts in find_files(folder, ".trans.txt"):
        for name, text in read_fields(transcripts):
            audio = str(transcripts.with_name(f"{name}.flac"))
            yield Row(name, audio, text=text, speaker=name.split("-")[0], language="en")
