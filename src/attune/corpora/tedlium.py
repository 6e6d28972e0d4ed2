"""TED-LIUM 3: English talks (openslr.org/51), cut by its STM files; `--from` is TEDLIUM_release-3."""

import re
from collections.abc import Iterator
from pathlib import Path

from attune.corpora._layout import Found, Layout, NoOptions, Place, Skipped, files_below, one_of, pairs_of, slice_of
from attune.corpora._rows import Row

IGNORED = "ignore_time_segment_in_scoring"
# Fillers and noises in braces, a pronunciation's number, and what the transcribers could not make out.
NOT_WORDS = re.compile(r"\{[^}]*\}|\(\d+\)|<[^>]*>")


def read(place: Place, options: NoOptions) -> dict[str, Iterator[Found]]:
    """The splits that scores are published on, which release 3 keeps in `legacy`."""
    root = one_of(place, "legacy", "train", "test").parent
    root = root / "legacy" if (root / "legacy").is_dir() else root
    return {split: _rows(root / split) for split in ("train", "dev", "test") if (root / split).is_dir()}


def _rows(folder: Path) -> Iterator[Found]:
    for transcripts in files_below(folder / "stm", ".stm"):
        for talk, _, speaker, start, end, rest in pairs_of(transcripts, 6):
            if talk.startswith(";;"):
                continue
            name = f"{talk}-{start}-{end}"
            text = written(rest.partition("> ")[2] if rest.startswith("<") else rest)
            if IGNORED in rest:
                yield Skipped(name, "not to be scored, by the corpus")
            elif not text:
                yield Skipped(name, "nothing is said")
            else:
                audio = str(folder / "sph" / f"{talk}.sph")
                yield slice_of(Row(name, audio, text=text, speaker=speaker, language="en"), start, end)


def written(text: str) -> str:
    """The words alone; `it 's`, as the corpus has it, is `it's`."""
    words = " ".join(NOT_WORDS.sub(" ", text).split())
    return re.sub(r" ('\w)", r"\1", words)


CORPUS = Layout(read)
