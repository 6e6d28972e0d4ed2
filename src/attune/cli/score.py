"""Score a predictions file of texts or labels again: no model, no audio."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, print_json, print_normalizer_hint
from attune.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from attune.types import Prediction, Scores

HELP = "score a predictions file again, without a model"
EXAMPLE = "attune score runs/demo/predictions/test.jsonl --normalizer basic --alignments errors.txt"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a predictions file and how to score it."""
    parser.add_argument("predictions", type=Path, help="a JSON lines file with id, value and reference")
    parser.add_argument(
        "--task",
        choices=["transcribe", "classify", "verify"],
        default="transcribe",
        help="task (default transcribe); verify: numbers with true or false as references",
    )
    parser.add_argument("--normalizer", metavar="NAME", help="for transcripts (default: none)")
    parser.add_argument("--alignments", type=Path, metavar="FILE", help="write word alignments, worst utterance first")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the scores; 1 when a prediction is absent, because then not every id could be scored."""
    from attune import catalog
    from attune.report.predictions import read_predictions
    from attune.report.tables import scores_json, scores_table

    if arguments.task != "transcribe" and (arguments.normalizer or arguments.alignments):
        raise ConfigError("--normalizer and --alignments are for transcripts. Remove them.")
    normalizer = arguments.normalizer or "none"
    normalize = catalog.find(catalog.NORMALIZERS, normalizer)
    predictions = read_predictions(arguments.predictions)
    scores = score_predictions(arguments.task, predictions, normalize, normalizer)
    if arguments.alignments:
        _write_alignments(arguments.alignments, predictions, normalize)
    if arguments.json:
        print_json(scores_json(scores))
    else:
        print(scores_table({arguments.predictions.name: scores}))
        print_normalizer_hint(scores, "--normalizer basic")
    return _report_absent(predictions)


def score_predictions(
    task: str, predictions: list[Prediction], normalize: Callable[[str], str] = str, normalizer: str = "none"
) -> Scores:
    """The scores of texts, labels or trials."""
    from attune.scoring.accuracy import score_labels
    from attune.scoring.error_rates import score_transcripts
    from attune.scoring.texts import texts_of

    if task == "verify":
        return _score_trials(predictions)
    references, values = texts_of(predictions)
    if task == "classify":
        return score_labels(references, values)
    return score_transcripts(references, values, normalize, normalizer)


def _score_trials(predictions: list[Prediction]) -> Scores:
    """EER, minDCF and Cllr of numbers, which Cllr takes for log-likelihood ratios."""
    import numpy as np

    from attune.metrics import Scores
    from attune.scoring.calibration import score_ratios
    from attune.scoring.detection import score_trials

    pairs = [(each.value, each.reference) for each in predictions]
    if not all(isinstance(value, int | float) and isinstance(reference, bool) for value, reference in pairs):
        raise DataError("--task verify: expected a number as value and true or false as reference in each line.")
    ratios, targets = np.array([value for value, _ in pairs], np.float64), np.array([right for _, right in pairs])
    names = [each.id for each in predictions]
    values = score_trials(ratios.tolist(), targets.tolist(), names) | score_ratios(ratios, targets, names)
    return Scores(values, {"num_trials": len(pairs), "num_target_trials": int(targets.sum())})


def _write_alignments(path: Path, predictions: list[Prediction], normalize: Callable[[str], str]) -> None:
    from attune import files
    from attune.report.alignments import alignments
    from attune.report.predictions import normalized

    text = "\n".join(f"{block}\n" for block in alignments(normalized(predictions, normalize)))
    try:
        files.write_text(path, text)
    except OSError as error:
        raise DataError(f"Cannot write alignments to {path}: {error.strerror}.") from error


def _report_absent(predictions: list[Prediction]) -> int:
    absent = [prediction.id for prediction in predictions if prediction.is_absent]
    if not absent:
        return 0
    print(
        f"{len(absent)} of {len(predictions)} not scored: no prediction "
        f"({', '.join(absent[:5])}{', …' if len(absent) > 5 else ''}). The scores cover the others only.",
        file=sys.stderr,
    )
    return 1
