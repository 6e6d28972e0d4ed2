"""What a report needs of a run, gathered from its folder and the manifests it was scored on.

Nothing is computed again but what scores.json does not keep, and nothing is fetched: where a manifest is no longer
there, the report has the texts and scores alone, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attune import catalog
from attune.contracts import Task
from attune.corpora import Corpus, fetch_manifest, open_corpus
from attune.errors import AttuneError, DataError
from attune.metrics import Json, Prediction, Scores
from attune.recipe import Recipe
from attune.report.page import Page
from attune.report.predictions import read_predictions
from attune.report.run_page import RunFacts, report_page
from attune.report.sets import ScoredSet, SpeakerTrial, kind_of, text_metric
from attune.report.sounds import sound_of_file
from attune.report.tables import scores_from_json
from attune.report.trials import trials_data
from attune.run import Run
from attune.site import Site, this_site
from attune.sources import locate, read_lock
from attune.types import ScoringContext, Utterance

EMBEDDED = 50  # recordings inside the page
MOST_TRAINING_ROWS = 200_000  # whose words are looked at
MOST_SCORED_ROWS = 1000  # that are scored one by one
BEFORE = "-before"  # the end of the name of a set that was scored before training


@dataclass(frozen=True, slots=True)
class _Opened:
    """A run with all that reading its predictions takes."""

    run: Run
    recipe: Recipe
    task: Task
    site: Site
    most_scored: int | None = MOST_SCORED_ROWS

    def corpus(self, name: str, saved: Mapping[str, Any]) -> Corpus:
        """The set of a name in scores.json."""
        split = name.removesuffix(BEFORE)
        sources = (saved["manifest"],) if "manifest" in saved else getattr(self.recipe.data, split, ())
        if not sources:
            raise DataError(f"The recipe has no data.{split}.")
        return open_corpus(split, [fetch_manifest(source, self.site.cache) for source in sources], self.run.data)


def save_report(run: Run, out: Path | str | None = None, state: str | None = None) -> Page:
    """The report of one run, written to report.html in the run or to `out`; `state` is the one it is about to have."""
    path = Path(out) if out else run.folder / "report.html"
    facts = run_facts(run, this_site(), path.absolute().parent)
    return report_page([replace(facts, state=state or facts.state)]).save(path)


def make_report(runs: Sequence[Run], site: Site, beside: Path, embedded: int = EMBEDDED) -> Page:
    """The page of some runs; recordings are linked relative to the folder `beside`."""
    return report_page([run_facts(run, site, beside, embedded) for run in runs])


def run_facts(run: Run, site: Site, beside: Path, embedded: int = EMBEDDED) -> RunFacts:
    """All that a report says about a run."""
    opened = _open(run, site)
    notes: list[str] = []
    names = [name for name in run.scores() if run.predictions(name).is_file()]
    vocabulary = _vocabulary(opened) if names else None
    best = run.best()
    return RunFacts(
        name=run.folder.absolute().name,
        folder=str(beside.absolute()),
        state=run.state() or "not finished",
        task=opened.recipe.task.name,
        model=" ".join(filter(None, [opened.recipe.model.family, opened.recipe.model.config.weights])),
        best=f"best {best.metric} {best.value:.2f} at step {best.step}" if best else "",
        recipe=_text(run.folder / "recipe.yaml"),
        command=_text(run.folder / "command.txt"),
        environment=_json(run.folder / "environment.json"),
        sources=[_source(each) for each in _json(run.lock).get("sources", ())],
        history=run.history(),
        sets=[_scored_set(name, opened, vocabulary, embedded, notes) for name in names],
        notes=notes,
    )


def require_run(run: Run) -> None:
    """Refuse a folder that is no run."""
    if not (run.folder / "recipe.yaml").is_file():
        raise DataError(f"{run.folder} is not a run: it has no recipe.yaml. Give the folder of a run.")


def scored_set(run: Run, name: str, site: Site) -> ScoredSet:
    """One set that a run predicted, with its utterances where they can be found, and every row's score."""
    return _scored_set(name, replace(_open(run, site), most_scored=None), None, EMBEDDED, [])


def _open(run: Run, site: Site) -> _Opened:
    require_run(run)
    cache = replace(site.cache, is_offline=True)
    if run.lock.is_file():
        cache = cache.locked_to(read_lock(run.lock))
    recipe = run.recipe()
    task = catalog.find(catalog.TASKS, recipe.task.name)(recipe.task.config, run.task)
    return _Opened(run, recipe, task, replace(site, cache=cache))


def _scored_set(
    name: str, opened: _Opened, vocabulary: frozenset[str] | None, embedded: int, notes: list[str]
) -> ScoredSet:
    saved = opened.run.scores()[name]
    predictions, scores = read_predictions(opened.run.predictions(name)), scores_from_json(saved)
    utterances: list[Utterance | None] = [None] * len(predictions)
    origins: list[str] = []
    try:
        corpus = opened.corpus(name, saved)
    except (AttuneError, OSError) as error:
        notes.append(f"{name}: no durations, speakers or audio: its manifest cannot be read. {error}")
    else:
        utterances, origins = _matched(predictions, corpus)
    scored = ScoredSet(
        name=name,
        predictions=predictions,
        scores=scores,
        utterances=utterances,
        origins=origins,
        normalize=_normalizer(scores),
        vocabulary=vocabulary,
        embedded=embedded,
    )
    try:
        return _with_task_parts(scored, opened)
    except (AttuneError, OSError) as error:
        notes.append(f"{name}: {error}")
        return scored


def _matched(predictions: Sequence[Prediction], corpus: Corpus) -> tuple[list[Utterance | None], list[str]]:
    """The utterance of each prediction, and its data set where there are several."""
    by_id = {utterance.id: (row, utterance) for row, utterance in enumerate(corpus)}
    names, origins = corpus.sets, corpus.origins
    found = [by_id.get(each.id) for each in predictions]
    sets = [names[origins[pair[0]]] if pair else "" for pair in found] if len(names) > 1 else []
    return [pair[1] if pair else None for pair in found], sets


def _normalizer(scores: Scores) -> Callable[[str], str] | None:
    name = scores.conditions.get("normalizer")
    return catalog.find(catalog.NORMALIZERS, name) if name else None


def _vocabulary(opened: _Opened) -> frozenset[str] | None:
    """The words of the training texts as they are scored, where there are not too many to read."""
    with suppress(AttuneError, OSError):
        corpus = opened.corpus("train", {})
        saved = next(iter(opened.run.scores().values()))
        normalize = _normalizer(scores_from_json(saved))
        if normalize and len(corpus) <= MOST_TRAINING_ROWS:
            return frozenset(word for each in corpus if each.text for word in normalize(each.text).split())
    return None


def _with_task_parts(scored: ScoredSet, opened: _Opened) -> ScoredSet:
    """What the kind of task adds: a curve, a time axis, players, a score for each row."""
    kind = kind_of(scored.predictions, scored.scores)
    if kind == "labels" or (kind == "text" and text_metric(scored.scores)):
        return scored
    split = scored.name.removesuffix(BEFORE)
    files = {name: locate(source, opened.site.cache) for name, source in opened.task.scoring_files(split).items()}
    context = ScoringContext(split, opened.run.predictions_folder, files, _finder(scored))
    match kind:
        case "trials":
            trials = speaker_trials(scored.predictions, files.get("trials"))
            curve = trials_data([each.score for each in trials], [each.is_target for each in trials])
            return replace(scored, trials=trials, extras={"trials": curve})
        case "segments":
            scored = replace(scored, extras={"timelines": [_timeline(each) for each in scored.predictions]})
        case "audio":
            scored = replace(scored, extras={"made": _made(scored, opened.run.predictions_folder)})
    return replace(scored, values=_row_scores(scored, opened, context))


def _finder(scored: ScoredSet) -> Callable[[str], Utterance]:
    known = {each.id: each for each in scored.utterances if each}

    def find(name: str) -> Utterance:
        if name not in known:
            raise DataError(f"{scored.name} has no utterance {name!r}.")
        return known[name]

    return find


def speaker_trials(predictions: Sequence[Prediction], listed: Path | None = None) -> list[SpeakerTrial]:
    """The trials of embeddings, of a list or drawn, as the task scores them."""
    from attune.tasks.verify_speaker import scored_trials, trials_of

    speakers = {each.id: str(each.reference) for each in predictions}
    return [
        SpeakerTrial(f"{one} {other}", is_target, (speakers[one], speakers[other]), cosine)
        for (is_target, one, other), cosine in scored_trials(predictions, trials_of(predictions, listed))
    ]


def _timeline(prediction: Prediction) -> Json:
    """The segments of the reference and of the hypothesis: start, end, speaker."""
    value: Any = prediction.value
    return [_segments(prediction.reference), _segments(value["segments"] if value else ())]


def _segments(segments: Any) -> list[Json]:
    return [[round(each["start"], 3), round(each["end"], 3), each["speaker"]] for each in segments]


def _made(scored: ScoredSet, folder: Path) -> Json:
    """Audio that the model made, of as many rows as there are recordings in the page."""
    files = [(row, each.file) for row, each in enumerate(scored.predictions) if each.file][: scored.embedded]
    return {str(row): found for row, file in files if (found := sound_of_file(folder / file))}


def _row_scores(scored: ScoredSet, opened: _Opened, context: ScoringContext) -> list[float | None]:
    """The first score of each row alone; of very many rows, or where only a whole set has one, none."""
    task, most = opened.task, opened.most_scored
    if task.scored_over == "set" or (most is not None and len(scored.predictions) > most):
        return []
    name = next(iter(scored.scores.values))
    return [
        None if each.is_absent else float(task.score([each], context).values[name].value) for each in scored.predictions
    ]


def _source(entry: Mapping[str, Any]) -> dict[str, Any]:
    files = entry.get("files") or {}
    size = sum(each.get("size", 0) for each in files.values())
    return {
        "source": entry.get("source", ""),
        "revision": entry.get("revision", ""),
        "files": len(files),
        "bytes": size,
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}
