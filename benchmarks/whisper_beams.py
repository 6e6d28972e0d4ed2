"""What a beam over Whisper ranks by, on clips under a second and on AN4: WER by `decode.length_power`.

    python benchmarks/whisper_beams.py WHISPER_FOLDER AN4/dev.jsonl [--powers 0,0.3,1] [--detect] [--out TEXTS.json]

The folder is one of transformers. `--sets`: espeak, digits of six espeak-ng voices, made here; cut, digits cut out of
the recordings that have nothing else, where the model's alignment has them; whole, the recordings. The encoder's states
are computed once, and every rule searches them; OpenAI's is openai-whisper's own, with the same weights and states, if
it is installed. `--detect` leaves the language open instead of English.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import attune
from attune.api import load
from attune.audio.decode import read_audio
from attune.batches.collate import collate
from attune.decoding.search import Search, search
from attune.families.whisper.model import WhisperModel
from attune.families.whisper.openai import renamed
from attune.families.whisper.scorer import WhisperScorer
from attune.families.whisper.windows import Windows
from attune.recognizer import Recognizer
from attune.testing.data import DIGITS
from attune.types import SAMPLE_RATE, Batch, LoadedRow, Utterance

NUMBERS = {*DIGITS, "oh"}
WORD_SECONDS = (0.15, 0.8)  # an alignment that found less or more is taken for wrong
AROUND = 0.05  # seconds before and after a word
VOICES = ("en-gb", "en-us", "en-gb-scotland", "en-us+f2", "en-us+m3", "en-gb+f4")
BATCH = 8


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording and its words."""

    samples: NDArray[np.float32]
    text: str


# A batch and the encoder's states (B, F, D) → its texts
Rule = Callable[[Batch, Windows, Tensor], list[str]]


def digits(voices: Sequence[str]) -> list[Clip]:
    """The digits by each voice, all under a second."""
    clips = []
    with tempfile.TemporaryDirectory() as folder:
        for voice in voices:
            for word in DIGITS:
                path = Path(folder, f"{voice}-{word}.wav")
                subprocess.run(["espeak-ng", "-v", voice, "-w", path, word], check=True)
                clips.append(Clip(read_audio(path), word))
    return clips


def recordings(manifest: Path) -> list[Clip]:
    """The rows of a manifest."""
    rows = map(json.loads, manifest.read_text().splitlines())
    return [Clip(read_audio(manifest.parent / row["audio"]), row["text"]) for row in rows]


def cut_digits(model: Recognizer, clips: Sequence[Clip]) -> Iterator[Clip]:
    """The words of those that have digits alone."""
    for clip in clips:
        text = clip.text.lower()
        if not {*text.split()} <= NUMBERS:
            continue
        for word in model.align(clip.samples, text).words:
            if WORD_SECONDS[0] <= word.end - word.start <= WORD_SECONDS[1]:
                first, last = round(SAMPLE_RATE * (word.start - AROUND)), round(SAMPLE_RATE * (word.end + AROUND))
                yield Clip(clip.samples[max(0, first) : last], word.text)


def rules(model: WhisperModel, read: Callable[..., object], beam: int, powers: Sequence[float]) -> dict[str, Rule]:
    """Greedy, a beam by each power, and OpenAI's."""

    def searched(settings: Search) -> Rule:
        def texts(batch: Batch, windows: Windows, states: Tensor) -> list[str]:
            scorer = WhisperScorer(model.model.decoder, model.rules, batch, states, windows)
            return [str(read(each)) for each in search(scorer, settings)]

        return texts

    found = {"greedy": searched(Search()), "the default": searched(Search("beam", beam))}
    found |= {f"`length_power: {power:g}`": searched(Search("beam", beam, power)) for power in powers}
    return {**found, "openai-whisper": by_openai(model, beam)} if find_spec("whisper") else found


def by_openai(model: WhisperModel, beam: int) -> Rule:
    """openai-whisper's beam over this model's weights."""
    from whisper import DecodingOptions, ModelDimensions, Whisper

    shape, tensors = model.shape, model.model.state_dict()
    audio = (shape.mels, shape.source_positions, shape.width, shape.encoder_heads, shape.encoder_layers)
    text = (shape.vocabulary, shape.target_positions, shape.width, shape.decoder_heads, shape.decoder_layers)
    theirs = Whisper(ModelDimensions(*audio, *text)).eval()
    names = {name: next(iter(renamed({name: tensor}))) for name, tensor in theirs.state_dict().items()}
    theirs.load_state_dict({name: tensors[ours.removeprefix("model.")] for name, ours in names.items()})
    options = DecodingOptions(language="en", beam_size=beam, without_timestamps=True, fp16=False)
    # One by one: its cache of several utterances does not fit their beams.
    return lambda batch, windows, states: [theirs.decode(each, options).text for each in states]


def as_whisper(model: Recognizer) -> WhisperModel:
    """The model inside, which has to be a Whisper."""
    found = model.loaded.task_model.model
    if not isinstance(found, WhisperModel):
        raise SystemExit("This benchmark is about Whisper models.")
    return found


def transcribe(model: Recognizer, clips: Sequence[Clip], every: dict[str, Rule]) -> dict[str, list[str]]:
    """The texts of all clips by each rule."""
    found: dict[str, list[str]] = {name: [] for name in every}
    whisper = as_whisper(model)
    prompt = model.loaded.task_model.codec.prompt(Utterance("", 0.0))
    for first in range(0, len(clips), BATCH):
        batch = collate([LoadedRow("", clip.samples, prompt) for clip in clips[first : first + BATCH]])
        with torch.inference_mode():
            windows, states = whisper.encode(batch)
            for name, rule in every.items():
                found[name] += rule(batch, windows, states)
    return found


def table(clips: Sequence[Clip], found: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Each rule with its WER."""
    references = [clip.text for clip in clips]
    for name, texts in found.items():
        yield name, f"{attune.score(references, texts, 'english').values['wer'].value:.1f} %"


def main() -> None:
    """Transcribe all sets by every rule, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--sets", type=lambda text: text.split(","), default=("espeak", "cut", "whole"))
    parser.add_argument("--every", type=int, default=1, help="of the recordings, and of the words cut: each n-th")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument(
        "--powers", type=lambda text: [float(each) for each in text.split(",")], default=[0, 0.3, 0.5, 1]
    )
    parser.add_argument("--voices", type=lambda text: text.split(","), default=VOICES, help="of espeak-ng")
    parser.add_argument("--detect", action="store_true", help="leave the language open")
    parser.add_argument("--out", type=Path, help="where to keep the texts, as JSON")
    given = parser.parse_args()
    model = load(given.model, device="cpu", language=None if given.detect else "en")
    every = rules(as_whisper(model), model.loaded.task_model.codec.read, given.beam, given.powers)
    rows = recordings(given.manifest)
    make: dict[str, Callable[[], list[Clip]]] = {
        "espeak": lambda: digits(given.voices),
        "cut": lambda: list(cut_digits(model, rows))[:: given.every],
        "whole": lambda: rows[:: given.every],
    }
    sets = {name: make[name]() for name in given.sets}
    found = {name: transcribe(model, clips, every) for name, clips in sets.items()}
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))
    print(
        "| |",
        " | ".join(f"{name}, {len(clips)} clips" for name, clips in sets.items()),
        "|\n|" + "---|" * (1 + len(sets)),
    )
    columns = [dict(table(sets[name], found[name])) for name in sets]
    for name in every:
        print("|", name, "|", " | ".join(column[name] for column in columns), "|")


if __name__ == "__main__":
    main()
