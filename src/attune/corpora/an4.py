"""AN4: an hour of spelled words and numbers in English; the original raw or sphere layout, or ready manifests."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile

from attune.corpora._layout import Found, Layout, NoOptions, Place, Skipped, files_below, lines_of, one_of
from attune.corpora._manifests import rows_of_manifest
from attune.corpora._rows import Row
from attune.files import completed

RATE = 16_000  # of the raw files, which say nothing about themselves: 16 bits, high byte first


def read(place: Place, options: NoOptions) -> dict[str, Iterator[Found]]:
    """The lists of `etc`, train and test; or each manifest of a folder that has some."""
    manifests = sorted(place.folder.glob("*.jsonl"))
    if manifests:
        return {path.stem: rows_of_manifest(path, path.parent) for path in manifests}
    etc = one_of(place, "etc", "an4/etc")
    return {split: _rows(etc / f"an4_{split}.transcription", place.to) for split in ("train", "test")}


def _rows(transcripts: Path, to: Path) -> Iterator[Found]:
    audio = {path.stem: path for path in files_below(transcripts.parents[1] / "wav", ".sph", ".raw", ".wav")}
    for line in lines_of(transcripts):
        match = re.fullmatch(r"(?:<s>)?(.*?)(?:</s>)?\s*\(([\w-]+)\)\s*", line)
        if match is None:
            yield Skipped(line, "a line without an id in brackets")
        elif match[2] not in audio:
            yield Skipped(match[2], "missing audio file")
        else:
            recording = _converted(audio[match[2]], to)
            yield Row(match[2], str(recording), text=match[1].strip(), speaker=match[2].split("-")[1], language="en")


def _converted(path: Path, to: Path) -> Path:
    """A raw file as a wav of the same samples, next to the manifests; any other as it is."""
    if path.suffix != ".raw":
        return path
    wav = to.absolute() / "audio" / f"{path.stem}.wav"
    if not wav.exists():
        samples = np.fromfile(path, ">i2").astype(np.int16)
        with completed(wav) as partial:
            soundfile.write(partial, samples, RATE, subtype="PCM_16", format="WAV")
    return wav


CORPUS = Layout(read, speakers_apart=True)
