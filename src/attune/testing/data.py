"""Tiny real data made on the fly: tone "speech" where every letter is a chord, which a tiny model learns in seconds.

The same arguments give the same bytes on every machine of the same kind.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from attune.files import write_text
from attune.seeds import derive
from attune.types import SAMPLE_RATE

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
VOICES = {"alto": 1.0, "bass": 0.8, "soprano": 1.2}  # speaker → pitch


def make_corpus(folder: Path, *, utterances: int = 24, seed: int = 0, vocabulary: Sequence[str] = DIGITS) -> Path:
    """Write `utterances` wav files of one to four words into `folder` and return their manifest (JSONL).

    Each row has id, audio, seconds, text, speaker and the label `register` (low, middle or high, by speaker).
    """
    audio = folder / "audio"
    audio.mkdir(parents=True, exist_ok=True)
    rows = [_utterance(audio, number, derive(seed, "corpus", number), vocabulary) for number in range(utterances)]
    manifest = folder / "manifest.jsonl"
    write_text(manifest, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return manifest


def speak(text: str, *, seed: int = 0, pitch: float = 1.0) -> NDArray[np.float32]:
    """`text` as chords: one per letter, 60 to 110 ms long, a pause for each space, a little noise over all of it."""
    random = np.random.default_rng(seed)
    letters = [_letter(letter, int(random.integers(960, 1760)), pitch) for letter in f" {text} "]
    clean = np.concatenate(letters)
    return (clean + random.normal(0, 0.003, clean.size)).astype(np.float32)


def _utterance(folder: Path, number: int, seed: int, vocabulary: Sequence[str]) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    text = " ".join(random.choice(vocabulary, size=int(random.integers(1, 5))))
    speaker = str(random.choice(list(VOICES)))
    samples = speak(text, seed=seed, pitch=VOICES[speaker])
    name = f"{number:05d}"
    soundfile.write(folder / f"{name}.wav", samples, SAMPLE_RATE, subtype="PCM_16")
    return {
        "id": name,
        "audio": f"audio/{name}.wav",
        "seconds": samples.size / SAMPLE_RATE,
        "text": text,
        "speaker": speaker,
        "labels": {"register": {"bass": "low", "alto": "middle", "soprano": "high"}[speaker]},
    }


def _letter(letter: str, samples: int, pitch: float) -> NDArray[np.float64]:
    if letter.isspace():
        return np.zeros(samples)
    # Six low and six high formants make 36 chords: letters of one alphabet stay apart.
    low, high = divmod(ord(letter) % 36, 6)
    time = np.arange(samples) / SAMPLE_RATE
    chord = np.sin(2 * np.pi * pitch * (300 + 110 * low) * time) + np.sin(
        2 * np.pi * pitch * (1300 + 260 * high) * time
    )
    return 0.2 * chord * np.hanning(samples) ** 0.5
