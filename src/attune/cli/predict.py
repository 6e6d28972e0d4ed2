"""Predict with a model of any task: texts, labels, vectors, segments, audio or frames for audio files."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attune.catalog import own_name
from attune.cli import transcribe
from attune.cli._recordings import answered, audio_files
from attune.cli._results import TableLayout, open_results, report
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.metrics import Json
    from attune.recognizer import PredictedValue, Recognizer

HELP = "predict labels, texts or whatever a model's task is, for audio files or folders"
EXAMPLE = "attune predict runs/emotions recordings/ --out labels.csv"


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """What was predicted for a file, or why there is nothing."""

    path: str
    value: Json = None
    probability: float | None = None
    score: float | None = None
    file: str | None = None  # audio or frames that were predicted
    problem: str | None = None
    segments: tuple[()] = ()  # captions are for transcripts
    words: tuple[()] = ()

    @property
    def line(self) -> str:
        """As it is printed: the path, the value and, of a label, its probability."""
        value = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False)
        chance = () if self.probability is None else (f"{self.probability:.4f}",)
        return "\t".join([self.path, self.file or value, *chance])

    def as_json(self) -> dict[str, Json]:
        """What is known of it."""
        known: dict[str, Json] = {"path": self.path, "value": self.value, "score": self.score, "problem": self.problem}
        more = {"probability": self.probability, "file": self.file}
        return known | {name: each for name, each in more.items() if each is not None}


def add_arguments(parser: ArgumentParser) -> None:
    """Take what `attune transcribe` takes."""
    transcribe.add_arguments(parser)


def run(arguments: Namespace) -> int:
    """Print a line for each file when it is done; exit 2 when one could not be read."""
    from attune.contracts import TextTask

    if arguments.launch == "ray":
        raise ConfigError("attune predict does not use Ray. Remove --launch, or use attune transcribe for texts.")
    recognizer = transcribe.load_recognizer(arguments)
    if isinstance(recognizer.loaded.task, TextTask):
        return transcribe.run(arguments, recognizer)
    if arguments.nbest:
        name = own_name(recognizer.recipe.task.name)
        raise ConfigError(f"--nbest is for transcripts, and this model was trained to {name}.")
    results = open_results(arguments, _layout())
    paths = list(audio_files(arguments.files))
    wanted = results.wanted(paths) if results else paths
    folder = Path() if results is None else results.out if results.is_folder else results.out.parent
    return report(_predicted(recognizer, wanted, folder, _names(paths)), results, arguments.json)


def _names(paths: Sequence[str]) -> dict[str, str]:
    """How what is made of each recording is called: as that is, with its folders where several are called so."""
    stems = Counter(Path(path).stem for path in paths)
    return {path: Path(path).stem if stems[Path(path).stem] == 1 else path for path in paths}


def _layout() -> TableLayout:
    from attune.report.formats import TABLES

    return TableLayout(("path", "value", "probability", "score", "file"), "value", TABLES)


def _predicted(
    recognizer: Recognizer, wanted: Sequence[str], folder: Path, names: Mapping[str, str]
) -> Iterator[PredictionRow]:
    for recording, found in answered(wanted, recognizer.predict):
        if found is None:
            yield PredictionRow(recording.path, problem=recording.problem)
        else:
            score = None if found.score is None else round(found.score, 4)
            file = _write(names[recording.path], found, folder)
            yield PredictionRow(recording.path, found.value, found.probability, score, file)


def _write(name: str, found: PredictedValue, folder: Path) -> str | None:
    """Audio or frames beside the results, or in the current folder."""
    from attune.report.predictions import write_features, write_waveform

    if found.waveform:
        return str(folder / write_waveform(folder, "predicted", name, found.waveform))
    if found.features:
        return str(folder / write_features(folder, "predicted", name, found.features))
    return None
