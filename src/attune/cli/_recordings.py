"""Recordings on the command line: files, URLs and folders of them, read and answered in batches."""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attune.cli._ranks import add_launch, devices
from attune.errors import AttuneError, ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attune.plain_yaml import Plain

Answer = TypeVar("Answer")
DECODING = re.compile(r"decode\.[a-z_.]+=")


@dataclass(frozen=True, slots=True)
class Recording:
    """The samples of a file, or why there are none."""

    path: str
    samples: NDArray[np.float32] | Sequence[float]
    problem: str | None = None


class _FilesAndDecoding(Action):
    """The files as `files`, and the decoding settings among them as `decode`."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, option_string: str | None = None
    ) -> None:
        words = [str(word) for word in values] if isinstance(values, list) else []
        namespace.files = [word for word in words if not DECODING.match(word) or Path(word).exists()]
        namespace.decode = decoding_of([word for word in words if word not in namespace.files])
        if not namespace.files:
            raise ConfigError("There is no audio file to read. Give files, folders or URLs after the model.")


def decoding_of(words: Sequence[str]) -> dict[str, Plain]:
    """decode.beam=8 as {"beam": 8}."""
    from attune.plain_yaml import read_data

    strange = [word for word in words if not DECODING.match(word)]
    if strange:
        raise ConfigError(f"Expected a setting such as decode.search=beam, found {strange[0]!r}.")
    settings = [word.removeprefix("decode.").partition("=") for word in words]
    return {name: read_data(value, f"decode.{name}") for name, _, value in settings}


def add_model_and_files(parser: ArgumentParser) -> None:
    """Take a model, audio files, and where to compute."""
    parser.add_argument("model", help="run, model folder, or URL of one")
    parser.add_argument(
        "files",
        nargs="+",
        action=_FilesAndDecoding,
        metavar="FILE|FOLDER",
        help="audio files, URLs, or folders and s3://…/ of them; decode.key=value changes the search, e.g. "
        "decode.search=beam decode.beam=8",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="device type (default auto)")
    add_launch(parser)
    parser.add_argument("--devices", type=devices, default="1", metavar="N|MIN-MAX", help="Ray workers (default 1)")
    parser.set_defaults(workers=None, timeout=None, offline=False)


def add_precision(parser: ArgumentParser) -> None:
    """Take what the model computes in."""
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16", "fp16", "int8"),
        help="what the model computes in: int8 is fast on CPUs, bf16 on GPUs (default: the recipe's decode.precision)",
    )


def audio_files(sources: Iterable[str]) -> Iterator[str]:
    """The files, and the audio files below each folder or prefix."""
    from attune.audio.containers import ALL_SUFFIXES
    from attune.sources import is_address, list_prefix

    for source in sources:
        if is_address(source) and source.endswith("/"):
            yield from (found for found in list_prefix(source) or () if found.lower().endswith(ALL_SUFFIXES))
            continue
        inside = sorted(path for path in Path(source).rglob("*") if path.suffix.lower() in ALL_SUFFIXES)
        yield from [str(path) for path in inside if not path.name.startswith(".")] or [source]


def answered(
    sources: Iterable[str], answer: Callable[[Sequence[NDArray[np.float32]]], Sequence[Answer]]
) -> Iterator[tuple[Recording, Answer | None]]:
    """All recordings in order with their answers, found in batches; one that cannot be read stops no other."""
    from attune.recognizer import BATCH_SECONDS
    from attune.types import SAMPLE_RATE

    waiting: list[Recording] = []
    for path in audio_files(sources):
        waiting.append(_read(path))
        if sum(len(recording.samples) for recording in waiting) >= BATCH_SECONDS * SAMPLE_RATE:
            yield from _answer(waiting, answer)
            waiting = []
    yield from _answer(waiting, answer)


def _answer(
    recordings: Sequence[Recording], answer: Callable[[Sequence[NDArray[np.float32]]], Sequence[Answer]]
) -> Iterator[tuple[Recording, Answer | None]]:
    readable = [recording.samples for recording in recordings if not recording.problem]
    found = iter(answer(readable))  # type: ignore[arg-type]
    for recording in recordings:
        yield recording, None if recording.problem else next(found)


def _read(path: str) -> Recording:
    from attune.api import load_audio
    from attune.audio.containers import ALL_SUFFIXES

    try:
        if Path(path).is_dir():
            raise DataError(f"{path} has no audio files ({', '.join(ALL_SUFFIXES)}).")
        return Recording(path, load_audio(path))
    except AttuneError as error:
        return Recording(path, (), str(error))
