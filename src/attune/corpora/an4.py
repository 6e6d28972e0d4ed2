"""AN4: an hour of spelled words and numbers in English; the original raw or sphere layout, or ready manifests."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from attune.audio.encode import write_audio
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
from attune.corpora._manifest_rows import manifest_rows
from attune.corpora._rows import Row

RATE = 16_000  # of the raw files, which have no header: 16 bits, big-endian


def read(corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    """Train and test from the lists in `etc`; or each manifest of a folder of manifests."""
    manifests = sorted(corpus.folder.glob("*.jsonl"))
    if manifests:
        return {path.stem: manifest_rows(path, path.parent) for path in manifests}
    etc = first_existing(corpus, "etc", "an4/etc")
    return {split: _rows(etc / f"an4_{split}.transcription", corpus.to) for split in ("train", "test")}


def _rows(transcripts: Path, to: Path) -> Iterator[RowOrSkipped]:
    audio = {path.stem: path for path in find_files(transcripts.parents[1] / "wav", ".sph", ".raw", ".wav")}
    for line in read_lines(transcripts):
        match = re.fullmatch(r"(?:<s>)?(.*?)(?:</s>)?\s*\(([\w-]+)\)\s*", line)
        if match is None:
            yield Skipped(line, "no id in brackets")
        elif match[2] not in audio:
            yield Skipped(match[2], "missing audio file")
        else:
            recording = _converted(audio[match[2]], to)
            yield Row(match[2], str(recording), text=match[1].strip(), speaker=match[2].split("-")[1], language="en")


def _converted(path: Path, to: Path) -> Path:
    """A raw file converted to wav, next to the manifests; any other file unchanged."""
    if path.suffix != ".raw":
        return path
    wav = to.absolute() / "audio" / f"{path.stem}.wav"
    if not wav.exists():
        samples = np.fromfile(path, ">i2").astype(np.int16)
        write_audio(wav, samples, RATE, "WAV", "PCM_16")
    return wav


CORPUS = Layout(read, speakers_apart=True)
