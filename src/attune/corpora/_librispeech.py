"""What LibriSpeech and corpora in its layout share: SET/SPEAKER/CHAPTER/*.trans.txt beside the recordings."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from attune.corpora._layout import Found, Layout, NoOptions, Place, files_below, one_of, pairs_of
from attune.corpora._rows import Row


def librispeech_layout(*sets: str) -> Layout:
    """A corpus of those of these sets that are there."""
    return Layout(partial(_read, sets), speakers_apart=True)


def _read(sets: tuple[str, ...], place: Place, options: NoOptions) -> dict[str, Iterator[Found]]:
    root = one_of(place, "LibriSpeech", ".")
    one_of(Place(str(root), place.to), *sets)  # at least one must be there
    return {name: _rows(root / name) for name in sets if (root / name).is_dir()}


def _rows(folder: Path) -> Iterator[Found]:
    for transcripts in files_below(folder, ".trans.txt"):
        for name, text in pairs_of(transcripts):
            audio = str(transcripts.with_name(f"{name}.flac"))
            yield Row(name, audio, text=text, speaker=name.split("-")[0], language="en")
