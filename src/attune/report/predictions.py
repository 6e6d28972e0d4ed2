"""Prediction files: a JSON object per line, `{"id": …, "value": … or null, "reference": …, "score": … or null}`.

A value is any JSON that the task predicts; one that is audio is a `file` beside the predictions. A file is enough to
score again without a model. Fields come in that order, and scores are rounded to three decimals.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import numpy as np

from attune import files
from attune.audio.encode import write_audio
from attune.errors import DataError
from attune.metrics import Json, Prediction
from attune.report.formats import table_text
from attune.scoring.texts import texts_of
from attune.types import Features, Waveform

COLUMNS = ("id", "reference", "value", "score", "language", "file")  # of a table
SHOWN_PROBLEMS = 20


def read_predictions(path: Path) -> list[Prediction]:
    """Every prediction of a file; what is wrong with it is listed line by line."""
    predictions: list[Prediction] = []
    problems: list[str] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        try:
            prediction = _parse(line)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
            continue
        first = lines.setdefault(prediction.id, number)
        if first != number:
            problems.append(f"line {number}: id {prediction.id!r} is already on line {first}")
        predictions.append(prediction)
    if not predictions and not problems:
        problems.append("the file is empty")
    if problems:
        raise DataError(_describe(path, problems))
    return predictions


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write a file that is complete as soon as it has its name."""
    files.write_text(path, "".join(map(_line, predictions)))


def export_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write them in the format of the file's suffix, for people and other programs."""
    rows = [_row(prediction) for prediction in predictions]
    files.write_text(path, table_text(path.suffix.lower(), rows, COLUMNS, "value"))


def write_waveform(folder: Path, split: str, name: str, waveform: Waveform) -> str:
    """Write audio that was predicted, as 32-bit floats; returns its file, relative to the folder of the predictions."""
    file = Path(split) / f"{files.file_stem(name)}.wav"
    (folder / split).mkdir(parents=True, exist_ok=True)
    write_audio(folder / file, waveform.samples.T, waveform.rate, "WAV", "FLOAT")
    return str(file)


def write_features(folder: Path, split: str, name: str, features: Features) -> str:
    """Write frames as 16-bit floats (.npy); returns their file, relative to the folder of the predictions."""
    file = Path(split) / f"{files.file_stem(name)}.npy"
    files.write_array(folder / file, features.frames.astype(np.float16))
    return str(file)


def copy_files(predictions: Iterable[Prediction], folder: Path, to: Path) -> None:
    """Lay the files that predictions name beside another file of the same predictions."""
    for prediction in predictions:
        if prediction.file and folder != to:
            (to / prediction.file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / prediction.file, to / prediction.file)


def normalized(predictions: Sequence[Prediction], normalize: Callable[[str], str]) -> list[Prediction]:
    """The same texts with references and values as they are to be scored."""
    return [
        replace(prediction, reference=normalize(reference), value=None if value is None else normalize(value))
        for prediction, reference, value in zip(predictions, *texts_of(predictions), strict=True)
    ]


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"Cannot read predictions from {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}. Predictions are JSON lines.") from error
    return files.split_lines(text)


def _parse(line: str) -> Prediction:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    wrong = [*_missing(row), *_mistyped(row)]
    if wrong:
        raise ValueError("; ".join(wrong))
    score = row.get("score")
    if isinstance(score, float) and not math.isfinite(score):  # Python's json writes these too
        score = None
    return Prediction(row["id"], row["value"], row["reference"], score, row.get("file"), row.get("language"))


def _missing(row: Mapping[str, Json]) -> list[str]:
    return [f"no {name!r}" for name in ("id", "value", "reference") if name not in row]


def _mistyped(row: Mapping[str, Json]) -> list[str]:
    wrong = [] if isinstance(row.get("id", ""), str) else ["'id' is not a string"]
    if not isinstance(row.get("score"), int | float | None) or isinstance(row.get("score"), bool):
        wrong.append("'score' is neither a number nor null")
    value = row.get("value")
    if isinstance(value, float) and not math.isfinite(value):
        wrong.append("'value' is not a finite number")
    if not isinstance(row.get("language"), str | None):
        wrong.append("'language' is neither a string nor null")
    file = row.get("file")
    if file is not None and not (isinstance(file, str) and _is_inside(PurePath(file))):
        wrong.append("'file' is not a path inside the folder of the predictions")
    return wrong


def _is_inside(path: PurePath) -> bool:
    return not path.is_absolute() and ".." not in path.parts


def _describe(path: Path, problems: list[str]) -> str:
    shown = problems[:SHOWN_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    expected = 'Expected on each line {"id": "…", "value": … or null, "reference": …}, each id once.'
    return "\n  ".join([f"Cannot score {path}:", *shown]) + f"\n{expected}"


def _line(prediction: Prediction) -> str:
    try:
        return json.dumps(_row(prediction), ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise DataError(f"Prediction {prediction.id!r} is not valid JSON: {error}.") from error


def _row(prediction: Prediction) -> dict[str, Json]:
    score = prediction.score
    return {
        "id": prediction.id,
        "value": prediction.value,
        "reference": prediction.reference,
        # JSON has no infinity, and -0.0 and 0.0 are one score.
        "score": round(score, 3) + 0.0 if score is not None and math.isfinite(score) else None,
        **({} if prediction.file is None else {"file": prediction.file}),
        **({} if prediction.language is None else {"language": prediction.language}),
    }
