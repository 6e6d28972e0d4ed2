"""IEMOCAP: acted emotions in five sessions of two speakers each; a fold trains on four sessions and tests on one.

The four classes of the literature: neutral, happy (with excited), angry, sad.
"""

import re
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

EMOTIONS = {"neu": "neu", "hap": "hap", "exc": "hap", "ang": "ang", "sad": "sad"}
EMOTION_LINE = re.compile(r"\[[\d.]+ - [\d.]+\]\s+(Ses\w+)\s+(\w+)\s")
TRANSCRIPT_LINE = re.compile(r"(Ses\w+)\s*\[[^\]]*\]:\s*(.*)")


def read(corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    """Each session is a split; the recipe defines the folds: train on four, test on the fifth."""
    root = first_existing(corpus, "Session1", "IEMOCAP_full_release/Session1").parent
    return {f"session{number}": _rows(root / f"Session{number}") for number in range(1, 6)}


def _rows(session: Path) -> Iterator[RowOrSkipped]:
    texts = _texts(session / "dialog" / "transcriptions")
    for judgements in find_files(session / "dialog" / "EmoEvaluation", ".txt"):
        if judgements.parent.name != "EmoEvaluation":  # the sheets of single annotators are below
            continue
        for line in read_lines(judgements):
            match = EMOTION_LINE.match(line)
            if match is None:
                continue
            name, emotion = match.groups()
            if emotion not in EMOTIONS:
                yield Skipped(name, f"emotion {emotion} is not one of the four classes")
                continue
            scene, _, turn = name.rpartition("_")
            audio = session / "sentences" / "wav" / scene / f"{name}.wav"
            labels = {"emotion": EMOTIONS[emotion], "judged": emotion}
            speaker = f"{name[:5]}{turn[0]}"
            yield Row(name, str(audio), text=texts.get(name), speaker=speaker, labels=labels, language="en")


def _texts(folder: Path) -> dict[str, str]:
    lines = (line for path in find_files(folder, ".txt") for line in read_lines(path))
    return {match[1]: match[2] for line in lines if (match := TRANSCRIPT_LINE.match(line)) and match[2].strip()}


CORPUS = Layout(read, speakers_apart=True)
