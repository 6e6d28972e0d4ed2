"""Transcribe audio files with a trained model."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import add_launch, cluster_of, devices
from attune.cli._terminal import add_json, at_least, print_json
from attune.errors import AttuneError, ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attune.api import Long, NBestEntry, Recognizer
    from attune.types import Word

HELP = "transcribe audio files, or all those in a folder, with a run or a model"
EXAMPLE = "attune transcribe runs/demo interview.mp3 recordings/"

AUDIO = (".flac", ".mp3", ".ogg", ".opus", ".wav")


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """What a file says, or why that cannot be told."""

    path: str
    text: str | None = None
    problem: str | None = None
    words: tuple[Word, ...] = ()  # with their times, where the model can tell those
    alternatives: tuple[NBestEntry, ...] = ()  # best first, where they are asked for


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
    add_launch(parser)
    parser.add_argument("--devices", type=devices, default="1", metavar="N|MIN-MAX", help="Ray workers (default 1)")
    parser.set_defaults(workers=None, timeout=None, offline=False)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="add each result to this .jsonl; what is in it is not done again"
    )
    parser.add_argument(
        "--long",
        choices=("pauses", "windows"),
        default="pauses",
        help="cut long recordings in their pauses (default), or read them window after window by the model's times",
    )
    parser.add_argument(
        "--language", metavar="CODE", help="what is spoken, such as be, for a model that knows several languages"
    )
    parser.add_argument("--fallback", action="store_true", help="decode what repeats itself anew, as decode.fallback")
    parser.add_argument(
        "--nbest", type=at_least(1), default=0, metavar="N", help="with --json: the best N texts of a beam search"
    )
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print a line for each file as it is done; exit 2 when one could not be read."""
    from attune.report.lines import Lines

    if arguments.launch == "ray" and arguments.out is None:
        raise ConfigError("--launch ray needs --out FILE, where each result is kept as soon as it is there.")
    if arguments.nbest and (not arguments.json or arguments.launch == "ray"):
        raise ConfigError("--nbest is shown by --json, and not under --launch ray.")
    if arguments.nbest and arguments.long == "windows":
        raise ConfigError("--nbest does not go with --long windows.")
    lines = Lines(arguments.out) if arguments.out else None
    wanted = [path for path in _files(arguments.files) if lines is None or path not in lines.ids]
    done = []
    for transcript in _transcribed(arguments, wanted):
        done.append(transcript)
        if transcript.problem:
            print(transcript.problem, file=sys.stderr, flush=True)
        else:
            if lines:
                lines.add(transcript.path, text=transcript.text)
            if not arguments.json:
                print(f"{transcript.path}\t{transcript.text}", flush=True)
    if arguments.json:
        print_json([asdict(transcript) for transcript in done])
    return 2 if any(transcript.problem for transcript in done) else 0


def _transcribed(arguments: Namespace, wanted: Sequence[str]) -> Iterator[TranscriptRow]:
    if not wanted:
        return
    if arguments.launch == "ray":
        from attune.launch.ray import map_on_ray

        how = (arguments.long, arguments.fallback, arguments.language)
        given = (arguments.model, arguments.device, str(Path.cwd()), *how)
        for row in map_on_ray(wanted, _Worker, given, cluster_of(arguments)):
            yield TranscriptRow(row["path"], row["text"], row["problem"])
        return
    from attune.api import load

    recognizer = load(arguments.model, arguments.device, arguments.long, arguments.fallback or None, arguments.language)
    yield from transcripts(recognizer, wanted, arguments.nbest)


class _Worker:
    """One of Ray's: it loads the model once, and then takes batches of paths."""

    def __init__(self, model: str, device: str, folder: str, long: Long, fallback: bool, language: str | None) -> None:
        from attune.api import load

        if Path(folder).is_dir():
            os.chdir(folder)  # relative paths start where the command was given
        self.recognizer = load(model, device, long, fallback or None, language)

    def __call__(self, batch: Mapping[str, Iterable[str]]) -> dict[str, list[str | None]]:
        done = list(transcripts(self.recognizer, map(str, batch["item"])))
        return {name: [getattr(each, name) for each in done] for name in ("path", "text", "problem")}


def transcripts(recognizer: Recognizer, sources: Iterable[str], alternatives: int = 0) -> Iterator[TranscriptRow]:
    """Every file in its turn, a batch at a time; a bad one does not keep the others from being transcribed."""
    from attune.api import BATCH_SECONDS
    from attune.types import SAMPLE_RATE

    waiting: list[_Recording] = []
    for path in _files(sources):
        waiting.append(_read(path))
        if sum(len(recording.samples) for recording in waiting) >= BATCH_SECONDS * SAMPLE_RATE:
            yield from _transcribe(recognizer, waiting, alternatives)
            waiting = []
    yield from _transcribe(recognizer, waiting, alternatives)


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


def _transcribe(recognizer: Recognizer, recordings: Sequence[_Recording], alternatives: int) -> Iterator[TranscriptRow]:
    readable = [recording.samples for recording in recordings if not recording.problem]
    said = iter(recognizer.transcribe_detailed(readable, alternatives=alternatives))
    for recording in recordings:
        if recording.problem:
            yield TranscriptRow(recording.path, problem=recording.problem)
        else:
            spoken = next(said)
            yield TranscriptRow(recording.path, spoken.text, words=spoken.words, alternatives=spoken.alternatives)
