"""Transcribe audio files with a trained model."""

from __future__ import annotations

import json
import os
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attune.cli._ranks import cluster_of
from attune.cli._recordings import add_model_and_files, add_precision, answered, audio_files
from attune.cli._results import ResultFile, TableLayout, add_out, open_results, plain, report
from attune.cli._shards import write_shards
from attune.cli._terminal import add_json, at_least
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.metrics import Json
    from attune.recognizer import Chunking, NBestEntry, Recognizer
    from attune.types import DecodingPrecision, TextSegment, Word

HELP = "transcribe audio files or folders with a run or a model"
EXAMPLE = "attune transcribe runs/demo interview.mp3 recordings/ --out texts.csv"

CHUNKING = ("vad", "timestamps")
WITH_WORDS = (".json", ".jsonl", ".srt", ".vtt", ".ass", ".ctm", ".textgrid")
FORMER_CHUNKING = {"pauses": "vad", "windows": "timestamps"}


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """The transcript of a file, or why there is none."""

    path: str
    text: str | None = None
    problem: str | None = None
    language: str | None = None  # given or detected
    segments: tuple[TextSegment, ...] = ()
    words: tuple[Word, ...] = ()  # with timestamps, if the model has them
    nbest: tuple[NBestEntry, ...] = ()  # best first, with --nbest

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{self.path}\t{self.text}"

    def as_json(self) -> dict[str, Json]:
        """All of it as plain data."""
        written = plain(self)
        return written if isinstance(written, dict) else {}


def add_arguments(parser: ArgumentParser) -> None:
    """Take a model, audio files, and decoding options."""
    add_model_and_files(parser)
    add_out(
        parser,
        ".jsonl, .json, .csv, .tsv, .txt, .srt, .vtt, .ass, .ctm or .TextGrid by its suffix, or shards in s3://…/",
    )
    parser.add_argument(
        "--chunking",
        choices=CHUNKING,
        default="vad",
        help="long recordings: split at pauses by VAD (default), or by the model's timestamps (Whisper)",
    )
    parser.add_argument("--long", type=_former_chunking, help=SUPPRESS)
    parser.add_argument("--language", metavar="CODE", help="language of the audio, e.g. be (multilingual models)")
    parser.add_argument("--fallback", action="store_true", help="decode repetitive output again (decode.fallback)")
    parser.add_argument(
        "--nbest", type=at_least(1), default=0, metavar="N", help="with --json: the N best hypotheses of a beam search"
    )
    parser.add_argument(
        "--phrases",
        action="append",
        default=[],
        metavar="PHRASE|FILE.txt",
        help="a name or term to expect, or a file with one per line; may be repeated (a beam search then boosts them)",
    )
    add_precision(parser)
    parser.add_argument(
        "--stream",
        action="store_true",
        help="print results while the audio arrives; - reads PCM16 at 16 kHz from stdin, e.g. a microphone",
    )
    add_json(parser)


def _former_chunking(value: str) -> str:
    """Answer the former option with the new one."""
    raise ArgumentTypeError(f"use --chunking {FORMER_CHUNKING.get(value, '|'.join(CHUNKING))}")


def run(arguments: Namespace, recognizer: Recognizer | None = None) -> int:
    """Print a line for each file when it is done; exit 2 when one could not be read."""
    if arguments.stream:
        from attune.cli._live import run_live

        return run_live(arguments, recognizer or load_recognizer(arguments))
    if arguments.launch == "ray" and arguments.out is None:
        raise ConfigError("--launch ray needs --out FILE.jsonl or --out s3://BUCKET/PREFIX/.")
    if arguments.nbest and (not arguments.json or arguments.launch == "ray"):
        raise ConfigError("--nbest needs --json (and does not work with --launch ray).")
    if arguments.nbest and arguments.chunking == "timestamps":
        raise ConfigError("--nbest does not work with --chunking timestamps. Use --chunking vad.")
    if isinstance(arguments.out, str):
        return write_shards(arguments, _Worker, (arguments.model, arguments.device, str(Path.cwd()), *_how(arguments)))
    results = open_results(arguments, _layout())
    if results and results.suffix == ".ctm" and arguments.chunking == "timestamps":
        raise ConfigError("CTM needs word times, which --chunking timestamps does not have. Use --chunking vad.")
    # Whisper's word times cost another pass, so they are for those who see them.
    words = arguments.json or (results is not None and results.suffix in WITH_WORDS)
    wanted = _wanted(arguments, results)
    return report(_transcribed(arguments, wanted, recognizer, words), results, arguments.json, len(wanted))


def load_recognizer(arguments: Namespace) -> Recognizer:
    """The model of the command line, ready to use."""
    from attune.api import load

    return load(arguments.model, arguments.device, *_how(arguments))


def _how(
    arguments: Namespace,
) -> tuple[Chunking, bool | None, str | None, tuple[str, ...], DecodingPrecision | None, Mapping[str, object]]:
    """The decoding options as `load` takes them."""
    fallback, phrases = arguments.fallback or None, tuple(arguments.phrases)
    return arguments.chunking, fallback, arguments.language, phrases, arguments.precision, arguments.decode


def _layout() -> TableLayout:
    from attune.report.formats import TABLES
    from attune.report.timed import TIMED

    return TableLayout(("path", "language", "text"), "text", (*TABLES, *TIMED))


def _wanted(arguments: Namespace, results: ResultFile | None) -> list[str]:
    paths = list(audio_files(arguments.files))
    return results.wanted(paths) if results else paths


def _transcribed(
    arguments: Namespace, wanted: Sequence[str], recognizer: Recognizer | None, words: bool
) -> Iterator[TranscriptRow]:
    if not wanted:
        return
    if arguments.launch == "ray":
        from attune.launch.ray import map_on_ray

        given = (arguments.model, arguments.device, str(Path.cwd()), *_how(arguments))
        for row in map_on_ray(wanted, _Worker, given, cluster_of(arguments)):
            yield _row(json.loads(row["row"]))
        return
    yield from transcripts(recognizer or load_recognizer(arguments), wanted, arguments.nbest, words)


def _row(values: Mapping[str, Any]) -> TranscriptRow:
    """A row that was JSON on its way."""
    from attune.types import TextSegment, Word

    segments = tuple(TextSegment(**each) for each in values["segments"])
    words = tuple(Word(**each) for each in values["words"])
    return TranscriptRow(values["path"], values["text"], values["problem"], values["language"], segments, words)


class _Worker:
    """A Ray worker: loads the model once, then transcribes batches of paths."""

    def __init__(
        self,
        model: str,
        device: str,
        folder: str,
        chunking: Chunking,
        fallback: bool | None,
        language: str | None,
        phrases: tuple[str, ...],
        precision: DecodingPrecision | None,
        decode: Mapping[str, object],
    ) -> None:
        from attune.api import load

        if Path(folder).is_dir():
            os.chdir(folder)  # relative paths start at the folder of the command
        self.recognizer = load(model, device, chunking, fallback, language, phrases, precision, decode)

    def __call__(self, batch: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        done = transcripts(self.recognizer, map(str, batch["item"]))
        return {"row": [json.dumps(each.as_json()) for each in done]}


def transcripts(
    recognizer: Recognizer, sources: Iterable[str], nbest: int = 0, words: bool = True
) -> Iterator[TranscriptRow]:
    """The transcripts of all files in order, decoded in batches; an unreadable file does not affect the others."""
    found = answered(sources, lambda readable: recognizer.transcribe_detailed(readable, nbest=nbest, words=words))
    for recording, transcript in found:
        if transcript is None:
            yield TranscriptRow(recording.path, problem=recording.problem)
        else:
            details = (transcript.language, transcript.segments, transcript.words, transcript.nbest)
            yield TranscriptRow(recording.path, transcript.text, None, *details)
