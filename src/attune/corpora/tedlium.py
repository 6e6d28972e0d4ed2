"""TED-LIUM 3: English talks (openslr.org/51), segmented by its STM files; `--from` is TEDLIUM_release-3."""

import re
from collections.abc import Iterator
from pathlib import Path

from attune.corpora._layout import (
    CorpusPaths,
    Layout,
    NoOptions,
    RowOrSkipped,
    Skipped,
    cut_segment,
    find_files,
    first_existing,
    read_fields,
)
from attune.corpora._rows import Row

IGNORED = "ignore_time_segment_in_scoring"
# Fillers and noises in braces, pronunciation numbers, and unintelligible words.
NOT_WORDS = re.compile(r"\{[^}]*\}|\(\d+\)|<[^>]*>")


def read(corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    """The splits that scores are published on, which release 3 keeps in `legacy`."""
    root = first_existing(corpus, "legacy", "train", "test").parent
    root = root / "legacy" if (root / "legacy").is_dir() else root
    return {split: _rows(root / split) for split in ("train", "dev", "test") if (root / split).is_dir()}


def _rows(folder: Path) -> Iterator[RowOrSkipped]:
    for transcripts in find_files(folder / "stm", ".stm"):
        for talk, _, speaker, start, end, rest in read_fields(transcripts, 6):
            if talk.startswith(";;"):
                continue
            name = f"{talk}-{start}-{end}"
            text = clean_transcript(rest.partition("> ")[2] if rest.startswith("<") else rest)
            if IGNORED in rest:
                yield Skipped(name, "excluded from scoring by the corpus")
            elif not text:
                yield Skipped(name, "empty transcript")
            else:
                audio = str(folder / "sph" / f"{talk}.sph")
                yield cut_segment(Row(name, audio, text=text, speaker=speaker, language="en"), start, end)


def clean_transcript(text: str) -> str:
    """The words alone; `it 's`, as the corpus has it, is `it's`."""
    words = " ".join(NOT_WORDS.sub(" ", text).split())
    return re.sub(r" ('\w)", r"\1", words)


CORPUS = Layout(read)
