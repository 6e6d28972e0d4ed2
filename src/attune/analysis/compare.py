"""Bring what is to be compared together: runs with their predictions, models that are decoded now, prediction files."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attune import catalog
from attune.errors import ConfigError, DataError
from attune.metrics import Prediction, Scores
from attune.report.comparison import Comparison, System, compare
from attune.report.predictions import read_predictions
from attune.report.score_comparison import ScoredRows, ScoredTrials, compare_rows, compare_trials
from attune.report.sets import PHONE_ERROR_RATE, ScoredSet, SpeakerTrial, kind_of, text_metric
from attune.report.tables import metric_label
from attune.run import Run
from attune.run_report import require_run, scored_set, speaker_trials
from attune.run_store import locate_stored
from attune.scoring.accuracy import ACCURACY
from attune.scoring.bleu import BLEU
from attune.scoring.detection import EER
from attune.scoring.error_rates import WER, score_transcripts
from attune.scoring.texts import texts_of
from attune.site import Site
from attune.stages.eval_target import evaluate_target, open_eval_target
from attune.stages.evaluate import Decoding
from attune.types import Utterance
from attune.world import World

PREFERRED = ("test", "dev")
DECODED = {WER.name, PHONE_ERROR_RATE, BLEU.name, ACCURACY.name, EER.name}  # metrics of what is decoded to be compared


@dataclass(frozen=True, slots=True)
class Opened:
    """A system with the set it predicted."""

    name: str
    scored: ScoredSet
    speed: float | None


def open_systems(sources: Sequence[str], on: str | None, normalizer: str, site: Site) -> list[Opened]:
    """The predictions that runs have of one set, or that files are."""
    runs = {source: _run(source, site) for source in sources if not _is_file(source)}
    split = _common_set(list(runs.values()), on) if runs else ""
    opened = []
    for source, name in zip(sources, _names(sources), strict=True):
        if run := runs.get(source):
            opened.append(Opened(name, scored_set(run, split, site), _speed(run, split)))
        else:
            opened.append(Opened(name, _file_set(Path(source), normalizer), None))
    return opened


def _run(source: str, site: Site) -> Run:
    """A run of this machine, or a copy of one in an object store, without checkpoints."""
    return Run(locate_stored(source, site.cache, which="none") or Path(source))


def _speed(run: Run, split: str) -> float | None:
    """Seconds of audio decoded in a second when a split was last scored in training; None where nobody knows."""
    found = None
    for line in run.log_lines():
        if line.get("event") == "scores" and line.get("split") == split and line.get("decoding_seconds"):
            found = line.get("audio_seconds", 0.0) / line["decoding_seconds"]
    return found or None


def _is_file(source: str) -> bool:
    return Path(source).suffix == ".jsonl"


def _names(sources: Sequence[str]) -> list[str]:
    """Names as short as they can be to tell systems apart."""
    short = [Path(source).stem if _is_file(source) else Path(source).absolute().name for source in sources]
    return short if len(set(short)) == len(short) else list(sources)


def _common_set(runs: Sequence[Run], on: str | None) -> str:
    for run in runs:
        require_run(run)
        if not run.scores():
            if not run.checkpoints.is_dir():
                raise DataError(
                    f"{run.folder} is a model, which keeps no scores. Compare prediction files: "
                    f"`attune evaluate {run.folder} --out FILE.jsonl` writes one."
                )
            raise DataError(f"{run.folder} has no scores. Run `attune evaluate {run.folder}` first.")
    sets = [{name for name in run.scores() if run.predictions(name).is_file()} for run in runs]
    common = sorted(set.intersection(*sets))
    chosen = on or next((name for name in (*PREFERRED, *common) if name in common), None)
    if chosen is None or chosen not in common:
        listed = "; ".join(
            f"{run.folder}: {', '.join(sorted(own)) or 'none'}" for run, own in zip(runs, sets, strict=True)
        )
        raise ConfigError(
            f"Not every run has predictions of {on or 'the same set'} ({listed}). Score them: "
            "attune evaluate RUN --on SET."
        )
    return chosen


def _file_set(path: Path, normalizer: str) -> ScoredSet:
    predictions = read_predictions(path)
    unknown: list[Utterance | None] = [None] * len(predictions)
    if all(isinstance(each.reference, bool) for each in predictions):
        trials = [_file_trial(each, path) for each in predictions]
        return ScoredSet(path.stem, predictions, Scores({}, {}), unknown, trials=trials)
    normalize = catalog.find(catalog.NORMALIZERS, normalizer)
    try:
        references, hypotheses = texts_of(predictions)
    except DataError as error:
        raise DataError(f"{path}: {error} Compare the runs, or files of texts or trials.") from error
    scores = score_transcripts(references, hypotheses, normalize, normalizer)
    return ScoredSet(path.stem, predictions, scores, unknown, normalize=normalize)


def _file_trial(prediction: Prediction, path: Path) -> SpeakerTrial:
    """A trial of a score file, whose speakers are not known: each side stands for its own."""
    sides = prediction.id.split()
    if len(sides) != 2 or not isinstance(prediction.value, int | float):
        raise DataError(
            f"{path}: expected a trial `ID ID` with a score, found {prediction.id!r}: {prediction.value!r}."
        )
    return SpeakerTrial(prediction.id, bool(prediction.reference), (sides[0], sides[1]), float(prediction.value))


def compare_opened(opened: Sequence[Opened]) -> tuple[Comparison, ScoredSet]:
    """The comparison, and its rows in its order."""
    first = opened[0].scored
    systems = [System(each.name, each.scored.predictions, each.speed) for each in opened]
    kinds = {
        "trials" if each.scored.trials else kind_of(each.scored.predictions, each.scored.scores) for each in opened
    }
    if len(kinds) > 1:
        raise ConfigError(f"The systems have different tasks: their predictions are {', '.join(sorted(kinds))}.")
    match kinds.pop():
        case "text" if metric := text_metric(first.scores):
            comparison = compare(first.name, systems, metric, first.normalize or _unchanged)
        case "labels":
            comparison = compare(first.name, systems, ACCURACY, _unchanged)
        case "trials":
            return _compare_trials(first.name, systems, [each.scored.trials for each in opened])
        case _:
            comparison = _compare_values(systems, [each.scored for each in opened])
    return comparison, _rows_of(first, comparison)


def _compare_values(systems: Sequence[System], scored: Sequence[ScoredSet]) -> Comparison:
    metric = next(iter(scored[0].scores.values.values())).metric
    for system, each in zip(systems, scored, strict=True):
        if not each.values:
            raise ConfigError(
                f"{system.name}: {metric_label(metric.name)} is a score of the whole of {each.name}: utterances have "
                "none that could be compared. `attune report RUN RUN` shows the scores of both in one page."
                if any(each.utterances)
                else f"{system.name}: the manifest of {each.name} cannot be read, which scoring its utterances takes. "
                "Put it back, or score again: attune evaluate RUN --on MANIFEST."
            )
    rows = [ScoredRows(system, each.values) for system, each in zip(systems, scored, strict=True)]
    return compare_rows(scored[0].name, rows, metric)


def _compare_trials(
    split: str, systems: Sequence[System], trials: Sequence[Sequence[SpeakerTrial]]
) -> tuple[Comparison, ScoredSet]:
    comparison = compare_trials(split, [ScoredTrials(*each) for each in zip(systems, trials, strict=True)])
    predictions = [Prediction(name, None, None) for name in comparison.ids]
    return comparison, ScoredSet(split, predictions, Scores({}, {}), [None] * len(predictions))


def _rows_of(scored: ScoredSet, comparison: Comparison) -> ScoredSet:
    """The utterances of a set that are compared."""
    rows = {each.id: row for row, each in enumerate(scored.predictions)}
    order = [rows[name] for name in comparison.ids]
    return replace(
        scored,
        predictions=[scored.predictions[row] for row in order],
        utterances=[scored.utterances[row] for row in order],
        origins=[scored.origins[row] for row in order] if scored.origins else (),
    )


def _unchanged(text: str) -> str:
    return text


def decode_systems(
    sources: Sequence[str], on: str, site: Site, world: World
) -> Generator[Decoding, None, list[Opened]]:
    """What models predict for a manifest now; nothing is kept with their runs."""
    targets = [replace(open_eval_target(source, [], site), run=None) for source in sources]
    for source, target in zip(sources, targets, strict=True):
        _require_comparable(source, target.pretrained.recipe.task.name, on)
    opened = []
    for target, name in zip(targets, _names(sources), strict=True):
        evaluation = yield from evaluate_target(target, on, None, site, world)
        predictions, scores = evaluation.predictions, evaluation.scores
        normalizer = scores.conditions.get("normalizer")
        scored = ScoredSet(
            name=Path(on).stem,
            predictions=predictions,
            scores=scores,
            utterances=[None] * len(predictions),
            normalize=catalog.find(catalog.NORMALIZERS, normalizer) if normalizer else None,
            trials=speaker_trials(predictions) if kind_of(predictions, scores) == "trials" else (),
        )
        factor = evaluation.real_time_factor
        opened.append(Opened(name, scored, 1 / factor if factor else None))
    return opened


def _require_comparable(source: str, task: str, on: str) -> None:
    """Refuse what cannot be compared by utterance before it is decoded."""
    metrics = {metric.name for metric in catalog.find(catalog.TASKS, task).metrics}
    if metrics.isdisjoint(DECODED):
        raise ConfigError(
            f"--retained compares texts, labels and speakers; {source} was trained to {task}. Score the models one by "
            f"one: attune evaluate RUN --on {on}."
        )
