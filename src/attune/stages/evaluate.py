"""Decode a corpus and score it. Every utterance is scored exactly once, or the evaluation fails."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from attune.batches.load import Reader, load, readers_watched
from attune.batches.micro_batch import LoadedMicroBatch
from attune.batches.plan import Budget, plan_in_order, spread
from attune.catalog import NORMALIZERS, find, suggestion
from attune.contracts import SpeechModel, Task, TaskModel
from attune.corpora import ChunkedCorpus, Corpus, CorpusSample
from attune.decoding.phrases import require_writable
from attune.decoding.predict import decode, share
from attune.decoding.search import Search
from attune.errors import ConfigError, DataError, Preempted
from attune.loading.pretrained import LoadedModel
from attune.recipe import Recipe
from attune.report.predictions import write_features, write_waveform
from attune.report.tables import scores_html, scores_json, scores_table
from attune.scoring.keywords import score_keywords
from attune.site import Site
from attune.sources import locate
from attune.types import (
    Features,
    Hypothesis,
    LayerWeighted,
    Metric,
    Output,
    Prediction,
    Score,
    Scores,
    ScoringContext,
    Utterance,
    Waveform,
)
from attune.world import World

DECODED_AT_ONCE = 4  # micro-batches: without gradients there is room for more, and a search is as long as one of them

Scored = Corpus | CorpusSample | ChunkedCorpus


@dataclass(frozen=True, slots=True)
class Decoding:
    """How far a rank has come with its share of a corpus."""

    split: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """The predictions of a rank by row, what went wrong, and how long it took."""

    predictions: dict[int, Prediction]
    problems: list[str]
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """The predictions of a corpus in manifest order, and their scores."""

    split: str
    predictions: tuple[Prediction, ...]
    scores: Scores
    rank_counts: tuple[dict[str, int], ...]  # of each rank: the scores' parts, or the predictions of a set
    search: Search
    problems: tuple[str, ...] = ()
    total: int | None = None  # utterances of the whole set, where only a sample of it was scored
    sets: Mapping[str, Scores] = field(default_factory=dict)  # each manifest's own scores, when there are several
    manifest: str | None = None  # what was scored, where it is no split of the recipe's
    groups: Mapping[str, Scores] = field(default_factory=dict)  # of each speaker, language or label, where asked for
    audio_seconds: float = 0.0
    decoding_seconds: float = 0.0  # from the first batch to the last, on the slowest rank
    layer_weights: Mapping[int, float] = field(default_factory=dict)  # of an encoder's layers, where they are summed

    @property
    def title(self) -> str:
        """What was scored: a set, or how much of it."""
        return f"{self.split} ({describe_sample(len(self.predictions), self.total)})" if self.total else self.split

    def __repr__(self) -> str:
        """What was scored and a table of the scores; predictions are in `predictions`."""
        return f"{self._headline}\n{scores_table(self._columns, has_counts=False)}"

    def _repr_html_(self) -> str:
        return scores_html(self._headline, self._columns)

    @property
    def _headline(self) -> str:
        return f"{self.title}: {len(self.predictions):,} utterances, {self.search.kind} search"

    @property
    def _columns(self) -> dict[str, Scores]:
        return {self.split: self.scores, **self.sets}

    @property
    def primary(self) -> Score:
        """The score of the task's first metric."""
        return next(iter(self.scores.values.values()))

    @property
    def real_time_factor(self) -> float | None:
        """Seconds of decoding for a second of audio; None where there is no audio."""
        return self.decoding_seconds / self.audio_seconds if self.audio_seconds else None

    @property
    def absent(self) -> int:
        """Utterances without a prediction."""
        return sum(prediction.is_absent for prediction in self.predictions)

    def as_json(self) -> dict[str, Any]:
        """Scores as plain data, for scores.json and --json."""
        return {
            **scores_json(self.scores),
            "utterances": len(self.predictions) - self.absent,
            "search": self.search.as_json(),
            "ranks": list(self.rank_counts),
            **({"manifest": self.manifest} if self.manifest else {}),
            **({"sample_of": self.total} if self.total else {}),
            **({"layer_weights": dict(self.layer_weights)} if self.layer_weights else {}),
            **({"sets": {name: scores_json(scores) for name, scores in self.sets.items()}} if self.sets else {}),
        }


def describe_sample(count: int, total: int) -> str:
    """How large a sample is, in words."""
    return f"{count:,} of {total:,} utterances, chosen by the seed"


def kept_metric(recipe: Recipe, task: Task) -> Metric | None:
    """The metric of `train.keep_best`; settings that do not go with the task's scores are refused."""
    for setting in ("eval_utterances", "final_utterances"):
        if getattr(recipe.train, setting) and task.scored_over == "set":
            raise ConfigError(f"train.{setting}: this task is scored over whole sets, not over samples. Remove it.")
    name = recipe.train.keep_best
    declared = {f"dev.{metric.name}": metric for metric in task.metrics}
    if name is not None and name not in declared:
        raise ConfigError(f"train.keep_best: this task has no score {name!r}{suggestion(name, declared)}")
    return declared[name] if name else None


def fetch_scoring_files(recipe: Recipe, task: Task, site: Site) -> dict[str, Path]:
    """What scoring needs beside the predictions, by source: a missing one stops a run at its start."""
    splits = [split for split in ("dev", "test", "retained") if getattr(recipe.data, split)]
    sources = {source for split in splits for source in task.scoring_files(split).values()}
    return {source: locate(source, site.cache) for source in sorted(sources)}


def scoring_context(task: Task, corpus: Scored, folder: Path, site: Site) -> ScoringContext:
    """What scoring a corpus may need; `folder` has the files that predictions name."""
    whole = corpus.whole if isinstance(corpus, ChunkedCorpus) else corpus
    files = {name: locate(source, site.cache) for name, source in task.scoring_files(corpus.name).items()}
    return ScoringContext(corpus.name, folder, files, _by_id(whole))


def _by_id(corpus: Corpus | CorpusSample) -> Callable[[str], Utterance]:
    @cache
    def rows() -> dict[str, int]:
        return {corpus[row].id: row for row in range(len(corpus))}

    def find(name: str) -> Utterance:
        if name not in rows():
            raise DataError(f"{corpus.name} has no utterance {name!r}.")
        return corpus[rows()[name]]

    return find


def as_scored(corpus: Corpus | CorpusSample, loaded: LoadedModel, recipe: Recipe) -> Scored:
    """The corpus as it will be decoded: with data.long_rows=split, utterances too long for the model are cut."""
    longest = loaded.task_model.limits.max_seconds
    if longest is None or recipe.data.long_rows != "split":
        return corpus
    return ChunkedCorpus(corpus, longest)


def evaluation_batches(
    loaded: LoadedModel, corpus: Scored, batch: int | None, recipe: Recipe, site: Site, world: World
) -> Iterator[LoadedMicroBatch]:
    """This rank's share of a corpus: `batch` utterances at a time, or as many as a few training micro-batches hold."""
    cache = loaded.task_model.cache
    reader = Reader(
        corpus,
        loaded.task_model.codec.prompt,
        reads_audio=loaded.task.needs_audio,
        drops_bad_rows=recipe.data.bad_rows == "drop",
        drops_long_rows=recipe.data.drops_long_rows,
        cached=cache.lookup() if cache else None,
        held=cache.held if cache else (),
        cached_needs_audio=loaded.task_model.scorer == "waveform",
    )
    plan = plan_in_order(corpus.seconds, Budget(None, batch, 1) if batch else _decoding_budget(recipe))
    batches = list(share(spread(plan, world.size), world))
    workers = min(site.workers, len(batches)) if len(batches) > 1 else 0  # one is read before a worker has started
    return load(reader, batches, workers, pins=world.device.type == "cuda")


def _decoding_budget(recipe: Recipe) -> Budget:
    seconds, utterances = recipe.batches.micro_seconds, recipe.batches.micro_utterances
    return Budget(
        DECODED_AT_ONCE * seconds if seconds else None, DECODED_AT_ONCE * utterances if utterances else None, 1
    )


def evaluate(
    loaded: LoadedModel,
    corpus: Scored,
    batches: Iterable[LoadedMicroBatch],
    search: Search,
    context: ScoringContext,
    world: World,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Generator[Decoding, None, Evaluation]:
    """Decode on all ranks, merge by row and score; yields how far this rank has come.

    A rank that is asked to stop decodes no further. All of them leave together, when the others have come too.
    """
    if search.phrases and search.kind == "beam":
        require_writable(search.phrases, (corpus[row] for row in range(len(corpus))))
    stopped: list[bool] = []
    mine = yield from decode_part(loaded, corpus, _until(stop_requested, batches, stopped), search, context, world)
    if any(world.gather(bool(stopped))):
        raise Preempted(f"Stopped while decoding {corpus.name}. Run the same command to resume.")
    return score_parts(loaded, corpus, world.gather(mine), search, context)


def decode_part(
    loaded: LoadedModel,
    corpus: Scored,
    batches: Iterable[LoadedMicroBatch],
    search: Search,
    context: ScoringContext,
    world: World,
) -> Generator[Decoding, None, DecodedPart]:
    """Decode batches of a corpus; yields how far this rank has come."""
    mine: dict[int, Prediction] = {}
    problems: list[str] = []
    yield Decoding(corpus.name, 0, len(corpus))
    began = time.monotonic()
    with readers_watched():
        for decoded in decode(loaded.task_model, batches, search, world):
            problems.extend(decoded.problems)
            for row, output in zip(decoded.rows, decoded.outputs, strict=True):
                mine[row] = _prediction(corpus[row], output, loaded, context)
            yield Decoding(corpus.name, min(len(corpus), len(mine) * world.size), len(corpus))
    return DecodedPart(mine, problems, time.monotonic() - began)


def score_parts(
    loaded: LoadedModel, corpus: Scored, parts: Sequence[DecodedPart], search: Search, context: ScoringContext
) -> Evaluation:
    """Merge by row, and score."""
    whole = corpus.whole if isinstance(corpus, ChunkedCorpus) else corpus
    by_rank = by_row(loaded, corpus, [part.predictions for part in parts])
    together = {row: prediction for part in by_rank for row, prediction in part.items()}
    predictions = tuple(together[row] for row in range(len(whole)))
    scores = _with_keywords(loaded.task.score(predictions, context), predictions, whole, search)
    return Evaluation(
        split=corpus.name,
        predictions=predictions,
        scores=scores,
        rank_counts=_rank_counts(loaded.task, scores, by_rank, context),
        search=search,
        problems=tuple(problem for part in parts for problem in part.problems),
        total=whole.total if isinstance(whole, CorpusSample) else None,
        sets=_by_set(whole, predictions, loaded.task, context),
        audio_seconds=float(whole.seconds.sum()) if loaded.task.needs_audio else 0.0,
        decoding_seconds=max(part.seconds for part in parts),
        layer_weights=_layer_weights(loaded.task_model.model),
    )


def _with_keywords(
    scores: Scores, predictions: Sequence[Prediction], corpus: Corpus | CorpusSample, search: Search
) -> Scores:
    """The scores with those of the phrases that were expected, where there are any and the task is about text."""
    common = search.phrases.phrases if search.phrases else ()
    expected = [(*common, *corpus[row].phrases) for row in range(len(corpus))]
    if "normalizer" not in scores.conditions or not any(expected):
        return scores
    found = score_keywords(predictions, expected, find(NORMALIZERS, scores.conditions["normalizer"]))
    conditions = {**scores.conditions, **found.conditions}
    if search.kind == "greedy":
        conditions["phrases"] += "; not boosted by a greedy search, set decode.search=beam"
    return Scores({**scores.values, **found.values}, scores.counts, conditions)


def _layer_weights(model: SpeechModel) -> Mapping[int, float]:
    return model.layer_weights() if isinstance(model, LayerWeighted) else {}


def _prediction(
    utterance: Utterance, output: Output | None, loaded: LoadedModel, context: ScoringContext
) -> Prediction:
    """What was found for an utterance; audio is written to a file beside the predictions."""
    reference = loaded.task.reference(utterance)
    if output is None:
        return Prediction(utterance.id, None, reference)
    place = context.folder, context.split, utterance.id
    if isinstance(output, Waveform):
        return Prediction(utterance.id, None, reference, output.score, write_waveform(*place, output))
    if isinstance(output, Features):
        return Prediction(utterance.id, None, reference, output.score, write_features(*place, output))
    language = output.language if isinstance(output, Hypothesis) else None
    return Prediction(utterance.id, loaded.task_model.codec.read(output), reference, output.score, language=language)


def _rank_counts(
    task: Task, scores: Scores, by_rank: Sequence[dict[int, Prediction]], context: ScoringContext
) -> tuple[dict[str, int], ...]:
    """What each rank scored, which adds up to the scores' counts; of a task that scores whole sets, how much."""
    if task.scored_over == "set":
        return tuple({"predictions": len(part)} for part in by_rank)
    if len(by_rank) == 1:
        return (dict(scores.counts),)
    return tuple(dict(task.score(list(part.values()), context).counts) for part in by_rank)


def _until(
    stop_requested: Callable[[], bool], batches: Iterable[LoadedMicroBatch], stopped: list[bool]
) -> Iterator[LoadedMicroBatch]:
    """The batches until a stop is requested; `stopped` then has something in it."""
    for loaded in batches:
        if stop_requested():
            stopped.append(True)
            return
        yield loaded


def _by_set(
    corpus: Corpus | CorpusSample, predictions: Sequence[Prediction], task: Task, context: ScoringContext
) -> dict[str, Scores]:
    """The scores of each manifest alone, where a part of the set can be scored."""
    if len(corpus.sets) == 1 or task.scored_over == "set":
        return {}
    own: dict[str, list[Prediction]] = {name: [] for name in corpus.sets}
    for origin, prediction in zip(corpus.origins, predictions, strict=True):
        own[corpus.sets[origin]].append(prediction)
    return {name: task.score(part, context) for name, part in own.items() if part}


def by_row(loaded: LoadedModel, corpus: Scored, parts: list[dict[int, Prediction]]) -> list[dict[int, Prediction]]:
    """Each rank's predictions by row of the whole corpus; an utterance in pieces is with the rank of its first."""
    times = Counter(row for part in parts for row in part)
    wrong = [corpus[row].id for row in range(len(corpus)) if times[row] != 1]
    if wrong:
        raise RuntimeError(f"{len(wrong)} utterances of {corpus.name} were not decoded exactly once: {wrong[:5]}")
    return _joined(loaded, corpus, parts) if isinstance(corpus, ChunkedCorpus) else parts


def _joined(
    loaded: LoadedModel, corpus: ChunkedCorpus, parts: list[dict[int, Prediction]]
) -> list[dict[int, Prediction]]:
    pieces: dict[int, list[Prediction]] = {row: [] for row in range(len(corpus.whole))}
    ranks: dict[int, int] = {}
    for piece, rank, prediction in sorted(
        ((piece, rank, prediction) for rank, part in enumerate(parts) for piece, prediction in part.items()),
        key=lambda item: item[0],
    ):
        pieces[corpus.owners[piece]].append(prediction)
        ranks.setdefault(corpus.owners[piece], rank)
    joined: list[dict[int, Prediction]] = [{} for _ in parts]
    for row, predictions in pieces.items():
        # In a recording without any speech there is no piece to decode.
        whole = corpus.whole[row]
        found = _join(predictions, loaded.task_model, whole) if predictions else _nothing(loaded, whole)
        joined[ranks.get(row, 0)][row] = found
    return joined


def _join(pieces: list[Prediction], built: TaskModel, whole: Utterance) -> Prediction:
    """The text of all pieces; absent when one of them could not be read."""
    if any(piece.is_absent for piece in pieces):
        return replace(pieces[0], value=None, score=None)
    values = [cast(str, piece.value) for piece in pieces]  # `join` refuses what is no text
    return replace(pieces[0], value=built.codec.join(values, whole), score=sum(piece.score or 0.0 for piece in pieces))


def _nothing(loaded: LoadedModel, utterance: Utterance) -> Prediction:
    return Prediction(utterance.id, "", loaded.task.reference(utterance), 0.0)
