"""Transcribe audio files with a trained model."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, print_json
from attune.errors import AttuneError, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attune.api import Recognizer
    from attune.types import Word

HELP = "transcribe audio files, or all those in a folder, with a run or a model"
EXAMPLE = "attune transcribe runs/demo interview.mp3 recordings/"

AUDIO = (".flac", ".mp3", ".ogg", ".opus", ".wav")


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a file says, or why that cannot be told."""

    path: str
    text: str | None = None
    problem: str | None = None
    words: tuple[Word, ...] = ()  # with their times, where the model can tell those


@dataclass(frozen=True, slots=True)
class _Recording:
    path: str
    samples: NDArray[np.float32] | Sequence[float]
    problem: str | None = None


def add_arguments(parser: ArgumentParser) -> None:
    """Take a model, files and where to compute."""
    parser.add_argument("model", help="a run, a model folder, or the URL of one")
    parser.add_argument("files", nargs="+", metavar="FILE|FOLDER", help="audio files, their URLs, or folders of them")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="kind of device")
    parser.add_argument(
        "--long",
        choices=("pauses", "windows"),
        default="pauses",
        help="cut long recordings in their pauses (default), or read them window after window by the model's times",
    )
    parser.add_argument("--fallback", action="store_true", help="decode what repeats itself anew, as decode.fallback")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print a line for each file as it is done; exit 2 when one could not be read."""
    from attune.api import load

    recognizer = load(arguments.model, arguments.device, arguments.long, arguments.fallback or None)
    done = []
    for transcript in transcripts(recognizer, arguments.files):
        done.append(transcript)
        if transcript.problem:
            print(transcript.problem, file=sys.stderr, flush=True)
        elif not arguments.json:
            print(f"{transcript.path}\t{transcript.text}", flush=True)
    if arguments.json:
        print_json([asdict(transcript) for transcript in done])
    return 2 if any(transcript.problem for transcript in done) else 0


def transcripts(recognizer: Recognizer, sources: Iterable[str]) -> Iterator[Transcript]:
    """Every file in its turn, a batch at a time; a bad one does not keep the others from being transcribed."""
    from attune.api import BATCH_SECONDS
    from attune.types import SAMPLE_RATE

    waiting: list[_Recording] = []
    for path in _files(sources):
        waiting.append(_read(path))
        if sum(len(recording.samples) for recording in waiting) >= BATCH_SECONDS * SAMPLE_RATE:
            yield from _transcribe(recognizer, waiting)
            waiting = []
    yield from _transcribe(recognizer, waiting)


def _files(sources: Iterable[str]) -> Iterator[str]:
    """Files as they are; instead of a folder, the audio files in it."""
    for source in sources:
        inside = sorted(str(path) for path in Path(source).glob("*") if path.suffix.lower() in AUDIO)
        yield from inside or [source]


def _read(path: str) -> _Recording:
    from attune.api import load_audio

    try:
        if Path(path).is_dir():
            raise DataError(f"{path} has no audio files in it; expected names that end in {', '.join(AUDIO)}.")
        return _Recording(path, load_audio(path))
    except AttuneError as error:
        return _Recording(path, (), str(error))


def _transcribe(recognizer: Recognizer, recordings: Sequence[_Recording]) -> Iterator[Transcript]:
    said = iter(recognizer.listen([recording.samples for recording in recordings if not recording.problem]))
    for recording in recordings:
        if recording.problem:
            yield Transcript(recording.path, problem=recording.problem)
        else:
            spoken = next(said)
            yield Transcript(recording.path, spoken.text, words=spoken.words)
