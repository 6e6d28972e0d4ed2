"""Transcribe audio files with a trained model."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
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

    from attune.recognizer import Chunking, NBestEntry, Recognizer
    from attune.types import Word

HELP = "transcribe audio files or folders with a run or a model"
EXAMPLE = "attune transcribe runs/demo interview.mp3 recordings/"

AUDIO = (".flac", ".mp3", ".ogg", ".opus", ".wav")
CHUNKING = ("vad", "timestamps")
FORMER_CHUNKING = {"pauses": "vad", "windows": "timestamps"}


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """The transcript of a file, or why there is none."""

    path: str
    text: str | None = None
    problem: str | None = None
    words: tuple[Word, ...] = ()  # with timestamps, if the model has them
    nbest: tuple[NBestEntry, ...] = ()  # best first, with --nbest


@dataclass(frozen=True, slots=True)
class _Recording:
    path: str
    samples: NDArray[np.float32] | Sequence[float]
    problem: str | None = None


def add_arguments(parser: ArgumentParser) -> None:
    """Take a model, audio files, and decoding options."""
    parser.add_argument("model", help="run, RUN@best|last|step-N, or model: folder, .nemo file or URL")
    parser.add_argument("files", nargs="+", metavar="FILE|FOLDER", help="audio files, URLs, or folders of audio files")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="device type (default auto)")
    add_launch(parser)
    parser.add_argument("--devices", type=devices, default="1", metavar="N|MIN-MAX", help="Ray workers (default 1)")
    parser.set_defaults(workers=None, timeout=None, offline=False)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="append each transcript to this .jsonl; files already in it are skipped",
    )
    parser.add_argument(
        "--chunking",
        choices=CHUNKING,
        default="vad",
        help="long recordings: split at pauses by VAD (default), or by the model's timestamps (Whisper)",
    )
    parser.add_argument("--long", type=_former_chunking, help=SUPPRESS)
    parser.add_argument("--language", metavar="CODE", help="language of the audio, e.g. be (multilingual models)")
    parser.add_argument("--fallback", action="store_true", help="decode repetitive output again, see decode.fallback")
    parser.add_argument(
        "--nbest", type=at_least(1), default=0, metavar="N", help="with --json: the N best hypotheses of a beam search"
    )
    add_json(parser)


def _former_chunking(value: str) -> str:
    """Answer the former option with the new one."""
    raise ArgumentTypeError(f"use --chunking {FORMER_CHUNKING.get(value, '|'.join(CHUNKING))}")


def run(arguments: Namespace) -> int:
    """Print a line for each file when it is done; exit 2 when one could not be read."""
    from attune.report.lines import Lines

    if arguments.launch == "ray" and arguments.out is None:
        raise ConfigError("--launch ray needs --out FILE, to which each transcript is appended.")
    if arguments.nbest and (not arguments.json or arguments.launch == "ray"):
        raise ConfigError("--nbest needs --json (and does not work with --launch ray).")
    if arguments.nbest and arguments.chunking == "timestamps":
        raise ConfigError("--nbest does not work with --chunking timestamps. Use --chunking vad.")
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

        how = (arguments.chunking, arguments.fallback, arguments.language)
        given = (arguments.model, arguments.device, str(Path.cwd()), *how)
        for row in map_on_ray(wanted, _Worker, given, cluster_of(arguments)):
            yield TranscriptRow(row["path"], row["text"], row["problem"])
        return
    from attune.api import load

    chunking = arguments.chunking
    recognizer = load(arguments.model, arguments.device, chunking, arguments.fallback or None, arguments.language)
    yield from transcripts(recognizer, wanted, arguments.nbest)


class _Worker:
    """A Ray worker: loads the model once, then transcribes batches of paths."""

    def __init__(
        self, model: str, device: str, folder: str, chunking: Chunking, fallback: bool, language: str | None
    ) -> None:
        from attune.api import load

        if Path(folder).is_dir():
            os.chdir(folder)  # relative paths start at the folder of the command
        self.recognizer = load(model, device, chunking, fallback or None, language)

    def __call__(self, batch: Mapping[str, Iterable[str]]) -> dict[str, list[str | None]]:
        done = list(transcripts(self.recognizer, map(str, batch["item"])))
        return {name: [getattr(each, name) for each in done] for name in ("path", "text", "problem")}


def transcripts(recognizer: Recognizer, sources: Iterable[str], nbest: int = 0) -> Iterator[TranscriptRow]:
    """The transcripts of all files in order, decoded in batches; an unreadable file does not affect the others."""
    from attune.recognizer import BATCH_SECONDS
    from attune.types import SAMPLE_RATE

    waiting: list[_Recording] = []
    for path in _files(sources):
        waiting.append(_read(path))
        if sum(len(recording.samples) for recording in waiting) >= BATCH_SECONDS * SAMPLE_RATE:
            yield from _transcribe(recognizer, waiting, nbest)
            waiting = []
    yield from _transcribe(recognizer, waiting, nbest)


def _files(sources: Iterable[str]) -> Iterator[str]:
    """The files, and the audio files of each folder."""
    for source in sources:
        inside = sorted(str(path) for path in Path(source).glob("*") if path.suffix.lower() in AUDIO)
        yield from inside or [source]


def _read(path: str) -> _Recording:
    from attune.api import load_audio

    try:
        if Path(path).is_dir():
            raise DataError(f"{path} has no audio files ({', '.join(AUDIO)}).")
        return _Recording(path, load_audio(path))
    except AttuneError as error:
        return _Recording(path, (), str(error))


def _transcribe(recognizer: Recognizer, recordings: Sequence[_Recording], nbest: int) -> Iterator[TranscriptRow]:
    readable = [recording.samples for recording in recordings if not recording.problem]
    found = iter(recognizer.transcribe_detailed(readable, nbest=nbest))
    for recording in recordings:
        if recording.problem:
            yield TranscriptRow(recording.path, problem=recording.problem)
        else:
            transcript = next(found)
            yield TranscriptRow(recording.path, transcript.text, words=transcript.words, nbest=transcript.nbest)
