"""Choose how much a language model counts in a run's beam search, on the dev set and never on the test set.

Run again, a setting that was decoded costs nothing: its predictions are kept beside the run.
"""

import json
import tempfile
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from attune import catalog
from attune.corpora import Corpus
from attune.decoding.search import Search
from attune.decoding.settings import USES, SearchConfig
from attune.decoding.word_ngram import WordNGram
from attune.errors import ConfigError
from attune.files import completed, write_text
from attune.loading.data import open_manifests
from attune.loading.language_models import search_of
from attune.loading.lock import as_locked
from attune.loading.pretrained import LoadedModel
from attune.metrics import Score
from attune.run import TUNED, Run
from attune.run_store import put_file
from attune.scoring.error_rates import WER, word_errors
from attune.scoring.significance import RateDifference, paired_bootstrap
from attune.scoring.texts import texts_of
from attune.site import Site
from attune.stages.eval_shards import as_lines, decoding_key, from_lines
from attune.stages.eval_target import EvalTarget, load_eval_target, open_for_evaluation
from attune.stages.evaluate import (
    Decoding,
    Evaluation,
    as_scored,
    evaluate,
    evaluation_batches,
    score_parts,
    scoring_context,
)
from attune.world import World

KEPT = ".tuning"  # in the run's folder; hidden, so that it stays on this machine


@dataclass(frozen=True, slots=True)
class FusionGrid:
    """What to try: weights first, then temperatures and length powers with the best weight."""

    weights: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    temperatures: tuple[float, ...] = ()
    length_powers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FusionPoint:
    """One setting; a weight of 0 is the same beam without a language model."""

    lm_weight: float
    lm_temperature: float = 1.0
    length_power: float | None = None


@dataclass(frozen=True, slots=True)
class TriedPoint:
    """How good a setting is, and the difference to the beam without a language model."""

    point: FusionPoint
    score: Score
    difference: RateDifference | None  # of WER


@dataclass(frozen=True, slots=True)
class TunedFusion:
    """What was tried, in this order, and the best."""

    split: str
    lm: str
    tried: tuple[TriedPoint, ...]
    best: TriedPoint
    reused: int = 0  # of them, decoded by an earlier command

    def as_json(self) -> dict[str, object]:
        """As plain data."""
        return {
            "on": self.split,
            "lm": self.lm,
            "metric": self.best.score.metric.name,
            "best": asdict(self.best.point),
            "tried": [
                {
                    **asdict(each.point),
                    "value": each.score.value,
                    "low": each.score.low,
                    "high": each.score.high,
                    "difference": each.difference._asdict() if each.difference else None,
                }
                for each in self.tried
            ],
        }


def tune_fusion(
    target: EvalTarget, run: Run, on: str, grid: FusionGrid, site: Site, world: World
) -> Generator[Decoding, None, TunedFusion]:
    """Try the grid on a dev set and write the best into the run's folder, from where evaluations read it."""
    recipe = target.pretrained.recipe
    config = recipe.decode.final or recipe.decode
    if config.lm is None or config.search != "beam":
        raise ConfigError("No language model to tune. Add decode.search=beam decode.lm=LM.arpa|RUN.")
    loaded = load_eval_target(target.pretrained, site, world)
    with tempfile.TemporaryDirectory() as scratch:
        site = as_locked(run, site)
        corpus = open_for_evaluation(target, on, Path(scratch), site, world)
        search = search_of(config, loaded.task_model, site, world)
        _require_usable(grid, search, loaded)
        kept = _Kept(run.folder / KEPT, _key(target, config, search, corpus, site) if world.is_first else "")
        tuning = _Tuning(target, loaded, corpus, search, kept, Path(scratch), site, world)
        _require_no_test(tuning, on)
        tried = yield from _try_all(tuning, _first_points(grid, search), {})
        tried = yield from _try_all(tuning, _further_points(grid, _best(tried)), tried)
    compared = _compared(tried)
    best = next(each for each in compared if each.point == _best(tried))
    reused = sum(each.was_kept for each in tried.values())
    found = TunedFusion(corpus.name, config.lm, tuple(compared), best, reused)
    if world.is_first:
        _write(run, found, search)
        kept.remove_others()
    return found


@dataclass(frozen=True, slots=True)
class _Decoded:
    evaluation: Evaluation
    was_kept: bool


_Tried = dict[FusionPoint, _Decoded]


def _key(target: EvalTarget, config: SearchConfig, search: Search, corpus: Corpus, site: Site) -> str:
    """Names all that decides beside what is tuned, so that more weights cost only themselves."""
    untuned = replace(config, lm_weight=0.0, lm_temperature=1.0, length_power=None)
    return decoding_key(target.pretrained, untuned, search, corpus, site)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The predictions of settings that were decoded, a file for each; of two commands at once, both write the same."""

    folder: Path
    key: str

    def read(self, point: FusionPoint) -> bytes | None:
        try:
            return self._path(point).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, point: FusionPoint, evaluation: Evaluation) -> None:
        with completed(self._path(point)) as partial:
            partial.write_bytes(as_lines(evaluation.predictions, evaluation.problems, evaluation.decoding_seconds))

    def remove_others(self) -> None:
        """Those of another language model, checkpoint, set or search."""
        for path in self.folder.glob("*.jsonl"):
            if not path.name.startswith(f"{self.key}-"):
                path.unlink(missing_ok=True)

    def _path(self, point: FusionPoint) -> Path:
        return self.folder / f"{self.key}-{point.lm_weight}-{point.lm_temperature}-{point.length_power}.jsonl"


@dataclass(frozen=True, slots=True)
class _Tuning:
    target: EvalTarget
    loaded: LoadedModel
    corpus: Corpus
    search: Search
    kept: _Kept  # for the first rank to read and write
    scratch: Path
    site: Site
    world: World

    def decode(self, point: FusionPoint) -> Generator[Decoding, None, _Decoded]:
        """Decode the dev set, unless that was done before, and score it."""
        recipe = self.target.pretrained.recipe
        corpus = as_scored(self.corpus, self.loaded, recipe)
        context = scoring_context(self.loaded.task, corpus, self.scratch, self.site)
        kept, *_ = self.world.gather(self.kept.read(point) if self.world.is_first else None)
        if kept is not None:
            part = from_lines([kept])
            return _Decoded(score_parts(self.loaded, self.corpus, [part], self._search(point), context), True)
        batches = evaluation_batches(self.loaded, corpus, recipe.decode.final_batch, recipe, self.site, self.world)
        evaluation = yield from evaluate(self.loaded, corpus, batches, self._search(point), context, self.world)
        if self.world.is_first:
            self.kept.write(point, evaluation)
        return _Decoded(evaluation, False)

    def _search(self, point: FusionPoint) -> Search:
        search = self.search
        if point.length_power is not None:
            search = replace(search, length_power=point.length_power, length_offset=0.0)
        if search.fusion is None or point.lm_weight == 0:
            return replace(search, fusion=None, lm=None)
        return replace(search, fusion=replace(search.fusion, weight=point.lm_weight, temperature=point.lm_temperature))


def _try_all(tuning: _Tuning, points: Iterable[FusionPoint], tried: _Tried) -> Generator[Decoding, None, _Tried]:
    """What was tried before, and these."""
    found = dict(tried)
    for point in points:
        if point not in found:
            found[point] = yield from tuning.decode(point)
    return found


def _first_points(grid: FusionGrid, search: Search) -> list[FusionPoint]:
    temperature = search.fusion.temperature if search.fusion else 1.0
    power = None if search.length_offset else search.length_power
    none = FusionPoint(0.0, length_power=power)
    return [none, *(FusionPoint(weight, temperature, power) for weight in sorted(grid.weights))]


def _require_usable(grid: FusionGrid, search: Search, loaded: LoadedModel) -> None:
    """Refuse what this search does not use, before anything is decoded."""
    if grid.length_powers and "length_power" not in USES[("beam", loaded.task_model.scorer)]:
        raise ConfigError("--length-powers: CTC beam search has no length normalization. Remove it.")
    if grid.temperatures and search.fusion and isinstance(search.fusion.model, WordNGram):
        raise ConfigError("--temperatures does not work with a language model over words. Remove it.")


def _further_points(grid: FusionGrid, best: FusionPoint) -> list[FusionPoint]:
    """The best weight at other temperatures and lengths."""
    hotter = [replace(best, lm_temperature=each) for each in grid.temperatures if best.lm_weight]
    return [*hotter, *(replace(best, length_power=each) for each in grid.length_powers)]


def _best(tried: _Tried) -> FusionPoint:
    """The best by the task's first metric; of equal ones the first."""
    scores = {point: each.evaluation.primary for point, each in tried.items()}
    best = next(iter(scores))
    for point, score in scores.items():
        if score.metric.is_better(score.value, scores[best].value):
            best = point
    return best


def _compared(tried: _Tried) -> list[TriedPoint]:
    """Each with its difference to the first, which has no language model."""
    evaluations = {point: each.evaluation for point, each in tried.items()}
    first = next(iter(evaluations.values()))
    return [
        TriedPoint(point, each.primary, _difference(first, each) if each.primary.metric == WER else None)
        for point, each in evaluations.items()
    ]


def _difference(first: Evaluation, second: Evaluation) -> RateDifference:
    normalize = catalog.find(catalog.NORMALIZERS, second.scores.conditions["normalizer"])
    (before, words), (after, _) = (word_errors(*texts_of(each.predictions), normalize) for each in (first, second))
    return paired_bootstrap(before, after, words)


def _require_no_test(tuning: _Tuning, on: str) -> None:
    """Refuse a set with utterances of the recipe's test set: a score on what was tuned on means nothing."""
    recipe = tuning.target.pretrained.recipe
    if not recipe.data.test:
        return
    test = open_manifests("test", recipe.data.test, recipe, tuning.scratch, tuning.site, tuning.world)
    common = len(np.intersect1d(tuning.corpus.hashes, test.hashes))
    if common:
        raise ConfigError(f"--on {on}: {common:,} of its utterances are in data.test. Tune on another set: --on dev.")


def _write(run: Run, found: TunedFusion, search: Search) -> None:
    point = found.best.point
    decode: dict[str, object] = {
        "search": "beam",
        "beam": search.beam,
        "ctc_weight": search.ctc_weight,
        "fallback": search.fallback,
        "lm": None,  # where the recipe has one, and none is better
    }
    if point.lm_weight:
        lm = str(Path(found.lm).absolute()) if Path(found.lm).exists() else found.lm
        decode |= {"lm": lm, "lm_weight": point.lm_weight, "lm_temperature": point.lm_temperature}
    if point.length_power is not None:
        decode["length_power"] = point.length_power
    write_text(run.folder / TUNED, json.dumps({"decode": decode, **found.as_json()}, indent=1) + "\n")
    if run.address:
        put_file(run, run.folder / TUNED)
