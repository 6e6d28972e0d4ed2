"""Audio SNIPS as SUPERB has it: commands of sixteen synthetic voices; slots as one IOB tag for each word, and intents.

Expects train/, valid/ and test/ with `VOICE-….wav`, and all.iob.snips.txt: `ID BOS words EOS<TAB>O slots INTENT`, with
the name of each word's slot, or O.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from attune.corpora._layout import (
    CorpusPaths,
    Layout,
    NoOptions,
    RowOrSkipped,
    Skipped,
    find_files,
    first_existing,
    read_lines,
)
from attune.corpora._rows import Row

TABLE = "all.iob.snips.txt"
FOLDERS = {"train": "train", "dev": "valid", "test": "test"}
VOICES = {
    "train": ("Ivy", "Joanna", "Joey", "Justin", "Kendra", "Kimberly", "Matthew", "Salli"),
    "dev": ("Aditi", "Amy", "Geraint", "Nicole"),
    "test": ("Brian", "Emma", "Raveena", "Russell"),
}
PUNCTUATION = frozenset("?!.,;-–…")  # as words of their own, which nobody pronounces


def read(corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    """Each split has the voices that SUPERB gives it: none is in two."""
    root = first_existing(corpus, TABLE, f"SNIPS/{TABLE}").parent
    return {split: _rows(root, split) for split in FOLDERS}


def _rows(root: Path, split: str) -> Iterator[RowOrSkipped]:
    lines = dict(line.split(maxsplit=1) for line in read_lines(root / TABLE) if len(line.split(maxsplit=1)) > 1)
    for path in find_files(root / FOLDERS[split], ".wav"):
        voice = path.stem.partition("-")[0]
        if voice not in VOICES[split]:
            yield Skipped(path.stem, "voice of another split")
        elif path.stem not in lines:
            yield Skipped(path.stem, f"not in {TABLE}")
        else:
            yield _row(path, voice, lines[path.stem])


def _row(path: Path, voice: str, line: str) -> RowOrSkipped:
    words, tab, tags = line.partition("\t")
    pairs = list(zip(words.split(), tags.split(), strict=False))
    if not tab or len(words.split()) != len(tags.split()) or len(pairs) < 3:
        return Skipped(path.stem, "as many words as tags were expected")
    intent = pairs[-1][1]
    pronounced = [("AND" if word == "&" else word, tag) for word, tag in pairs[1:-1] if word not in PUNCTUATION]
    labels = {"slots": " ".join(_iob([tag for _, tag in pronounced])), "intent": intent}
    text = " ".join(word for word, _ in pronounced)
    return Row(path.stem, str(path), text=text, speaker=voice, labels=labels, language="en")


def _iob(slots: Sequence[str]) -> Iterator[str]:
    """The names of slots as IOB tags: words in a row that have the same slot are one value."""
    for before, slot in pairwise(["O", *slots]):
        yield slot if slot == "O" or slot.startswith(("B-", "I-")) else f"{'I' if slot == before else 'B'}-{slot}"


CORPUS = Layout(read, speakers_apart=True)
