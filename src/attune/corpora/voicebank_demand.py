"""VoiceBank-DEMAND: noisy speech with the clean recording beside it, for enhancement; dev is p226 and p287."""

from collections.abc import Iterator
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

DEV = ("p226", "p287")
SETS = {"train": "trainset_28spk", "dev": "trainset_28spk", "test": "testset"}


def read(corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    """Training has 26 speakers, dev two of the official training set, test two others."""
    splits = {}
    for split, name in SETS.items():
        noisy = first_existing(corpus, f"noisy_{name}_wav_16k", f"noisy_{name}_wav")
        clean = first_existing(corpus, f"clean_{name}_wav_16k", f"clean_{name}_wav")
        splits[split] = _rows(noisy, clean, corpus.folder / f"{name}_txt", split)
    return splits


def _rows(noisy: Path, clean: Path, texts: Path, split: str) -> Iterator[RowOrSkipped]:
    for path in find_files(noisy, ".wav"):
        speaker = path.stem.partition("_")[0]
        if split != "test" and (speaker in DEV) != (split == "dev"):
            continue
        target, transcript = clean / path.name, texts / f"{path.stem}.txt"
        if not target.is_file():
            yield Skipped(path.stem, "missing clean recording")
            continue
        text = " ".join(line.strip() for line in read_lines(transcript)) if transcript.is_file() else None
        yield Row(path.stem, str(path), text=text, speaker=speaker, language="en", signals={"clean": str(target)})


CORPUS = Layout(read, speakers_apart=True)
