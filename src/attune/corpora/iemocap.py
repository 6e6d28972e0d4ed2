"""IEMOCAP: acted emotions in five sessions of two speakers each; a fold is four sessions to learn from and one to test.

The four classes of the literature: neutral, happy (with excited), angry, sad.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from attune.corpora._layout import Found, Layout, NoOptions, Place, Skipped, files_below, lines_of, one_of
from attune.corpora._rows import Row

EMOTIONS = {"neu": "neu", "hap": "hap", "exc": "hap", "ang": "ang", "sad": "sad"}
JUDGED = re.compile(r"\[[\d.]+ - [\d.]+\]\s+(Ses\w+)\s+(\w+)\s")
SPOKEN = re.compile(r"(Ses\w+)\s*\[[^\]]*\]:\s*(.*)")


def read(place: Place, options: NoOptions) -> dict[str, Iterator[Found]]:
    """Each session is a split; a recipe makes the folds: train on four, test on the fifth."""
    root = one_of(place, "Session1", "IEMOCAP_full_release/Session1").parent
    return {f"session{number}": _rows(root / f"Session{number}") for number in range(1, 6)}


def _rows(session: Path) -> Iterator[Found]:
    texts = _texts(session / "dialog" / "transcriptions")
    for judgements in files_below(session / "dialog" / "EmoEvaluation", ".txt"):
        if judgements.parent.name != "EmoEvaluation":  # the judges' own sheets are below
            continue
        for line in lines_of(judgements):
            match = JUDGED.match(line)
            if match is None:
                continue
            name, emotion = match.groups()
            if emotion not in EMOTIONS:
                yield Skipped(name, f"judged {emotion}, none of the four classes")
                continue
            scene, _, turn = name.rpartition("_")
            audio = session / "sentences" / "wav" / scene / f"{name}.wav"
            labels = {"emotion": EMOTIONS[emotion], "judged": emotion}
            speaker = f"{name[:5]}{turn[0]}"
            yield Row(name, str(audio), text=texts.get(name), speaker=speaker, labels=labels, language="en")


def _texts(folder: Path) -> dict[str, str]:
    lines = (line for path in files_below(folder, ".txt") for line in lines_of(path))
    return {match[1]: match[2] for line in lines if (match := SPOKEN.match(line)) and match[2].strip()}


CORPUS = Layout(read, speakers_apart=True)
