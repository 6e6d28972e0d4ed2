"""Decode a corpus and score it. Every utterance is scored exactly once, or the evaluation says so and fails."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attune.batches.load import LoadedMicroBatch, Reader, load, readers_watched
from attune.batches.plan import Budget, plan_in_order
from attune.catalog import suggestion
from attune.contracts import Task, TaskModel
from attune.corpora import ChunkedCorpus, Corpus, CorpusSample
from attune.decoding.ngram import read_arpa
from attune.decoding.predict import decode, share
from attune.decoding.search import Search
from attune.decoding.settings import SearchConfig
from attune.errors import ConfigError, ModelError, Preempted
from attune.recipe import Recipe
from attune.report.tables import scores_json
from attune.site import Site
from attune.sources import locate
from attune.stages.pretrained import LoadedModel
from attune.types import Prediction, Scores, Utterance
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
class Evaluation:
    """The predictions of a corpus in manifest order, and their scores."""

    split: str
    predictions: tuple[Prediction, ...]
    scores: Scores
    rank_counts: tuple[dict[str, int], ...]  # what each rank scored; they add up to the scores' counts
    search: Search
    problems: tuple[str, ...] = ()
    total: int | None = None  # utterances of the whole set, where only a sample of it was scored
    sets: Mapping[str, Scores] = field(default_factory=dict)  # each manifest's own scores, when there are several
    manifest: str | None = None  # what was scored, where it is no split of the recipe's

    @property
    def title(self) -> str:
        """What was scored: a set, or how much of it."""
        return f"{self.split} ({describe_sample(len(self.predictions), self.total)})" if self.total else self.split

    @property
    def absent(self) -> int:
        """Utterances without a prediction."""
        return sum(prediction.value is None for prediction in self.predictions)

    def as_json(self) -> dict[str, Any]:
        """Scores as plain data, for scores.json and --json."""
        return {
            **scores_json(self.scores),
            "search": self.search.as_json(),
            "ranks": list(self.rank_counts),
            **({"manifest": self.manifest} if self.manifest else {}),
            **({"sample_of": self.total} if self.total else {}),
            **({"sets": {name: scores_json(scores) for name, scores in self.sets.items()}} if self.sets else {}),
        }


def describe_sample(count: int, total: int) -> str:
    """How large a sample is, in words."""
    return f"{count:,} of {total:,} utterances, chosen by the seed"


def require_scores(metric: str | None, task: Task) -> None:
    """Refuse to begin where scoring cannot work, or lacks a score of the dev sets; it would be missed hours later."""
    names = [f"dev.{name}" for name in task.score([Prediction("", "", "")]).values]
    if metric is not None and metric not in names:
        raise ConfigError(f"train.keep_best: there is no score {metric!r}{suggestion(metric, names)}")


def search_of(config: SearchConfig, built: TaskModel, site: Site, world: World) -> Search:
    """The recipe's search settings as the decoder takes them, with the language model they name."""
    if config.fallback and built.scorer != "tokens":
        raise ModelError("decode.fallback is for models that say one token after another. Set it to false.")
    plain = Search(config.search, config.beam, config.length_power, config.fallback, config.precision)
    if config.lm is None:
        return plain
    if not built.codec.pieces:
        raise ModelError(
            f"decode.lm: {config.lm} cannot be used: this family does not search with a language model. Leave it out."
        )
    model = read_arpa(locate(config.lm, site.cache), built.codec.pieces, world.device)
    return replace(plain, lm=config.lm, lm_weight=config.lm_weight, language_model=model)


def as_scored(corpus: Corpus | CorpusSample, assembled: LoadedModel, recipe: Recipe) -> Scored:
    """The corpus as it will be decoded: where the recipe says so, what is too long to be heard at once is cut."""
    longest = assembled.task_model.limits.max_seconds
    if longest is None or recipe.data.long_rows != "split":
        return corpus
    return ChunkedCorpus(corpus, longest)


def evaluation_batches(
    assembled: LoadedModel, corpus: Scored, batch: int | None, recipe: Recipe, site: Site, world: World
) -> Iterator[LoadedMicroBatch]:
    """This rank's share of a corpus: `batch` utterances at a time, or as many as a few training micro-batches hold."""
    reader = Reader(
        corpus,
        assembled.task_model.codec.prompt,
        drops_bad_rows=recipe.data.bad_rows == "drop",
        drops_long_rows=recipe.data.drops_long_rows,
    )
    plan = plan_in_order(corpus.seconds, Budget(None, batch, 1) if batch else _decoding_budget(recipe))
    batches = list(share(plan, world))
    workers = min(site.workers, len(batches)) if len(batches) > 1 else 0  # one is read before a worker has started
    return load(reader, batches, workers, pins=world.device.type == "cuda")


def _decoding_budget(recipe: Recipe) -> Budget:
    seconds, utterances = recipe.batches.micro_seconds, recipe.batches.micro_utterances
    return Budget(
        DECODED_AT_ONCE * seconds if seconds else None, DECODED_AT_ONCE * utterances if utterances else None, 1
    )


def evaluate(
    assembled: LoadedModel,
    corpus: Scored,
    batches: Iterable[LoadedMicroBatch],
    search: Search,
    world: World,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Generator[Decoding, None, Evaluation]:
    """Decode on all ranks, merge by row and score; yields how far this rank has come.

    A rank that is asked to stop decodes no further. All of them leave together, when the others have come too.
    """
    stopped: list[bool] = []
    mine: dict[int, Prediction] = {}
    problems: list[str] = []
    yield Decoding(corpus.name, 0, len(corpus))
    with readers_watched():
        for decoded in decode(assembled.task_model, _until(stop_requested, batches, stopped), search, world):
            problems.extend(decoded.problems)
            for row, hypothesis in zip(decoded.rows, decoded.hypotheses, strict=True):
                utterance = corpus[row]
                value = None if hypothesis is None else assembled.task_model.codec.read(hypothesis)
                score = None if hypothesis is None else hypothesis.score
                mine[row] = Prediction(utterance.id, value, assembled.task.reference(utterance), score)
            yield Decoding(corpus.name, min(len(corpus), len(mine) * world.size), len(corpus))
    if any(world.gather(bool(stopped))):
        raise Preempted(f"Asked to stop: {corpus.name} is not decoded to its end. Run the same command to go on.")
    parts = world.gather((mine, problems))
    whole = corpus.whole if isinstance(corpus, ChunkedCorpus) else corpus
    by_rank = _by_rank(assembled, corpus, [part for part, _ in parts])
    together = {row: prediction for part in by_rank for row, prediction in part.items()}
    predictions = tuple(together[row] for row in range(len(whole)))
    scores = assembled.task.score(predictions)
    counts = (
        (scores.counts,)
        if world.size == 1
        else tuple(assembled.task.score(list(part.values())).counts for part in by_rank)
    )
    return Evaluation(
        corpus.name,
        predictions,
        scores,
        tuple(map(dict, counts)),
        search,
        tuple(problem for _, found in parts for problem in found),
        whole.total if isinstance(whole, CorpusSample) else None,
        _by_set(whole, predictions, assembled.task),
    )


def _until(
    stop_requested: Callable[[], bool], batches: Iterable[LoadedMicroBatch], stopped: list[bool]
) -> Iterator[LoadedMicroBatch]:
    """The batches until a stop is requested; `stopped` then has something in it."""
    for loaded in batches:
        if stop_requested():
            stopped.append(True)
            return
        yield loaded


def _by_set(corpus: Corpus | CorpusSample, predictions: Sequence[Prediction], task: Task) -> dict[str, Scores]:
    """The scores of each manifest alone."""
    if len(corpus.sets) == 1:
        return {}
    own: dict[str, list[Prediction]] = {name: [] for name in corpus.sets}
    for origin, prediction in zip(corpus.origins, predictions, strict=True):
        own[corpus.sets[origin]].append(prediction)
    return {name: task.score(part) for name, part in own.items() if part}


def _by_rank(assembled: LoadedModel, corpus: Scored, parts: list[dict[int, Prediction]]) -> list[dict[int, Prediction]]:
    """Each rank's predictions by row of the whole corpus; an utterance in pieces is with the rank of its first."""
    times = Counter(row for part in parts for row in part)
    wrong = [corpus[row].id for row in range(len(corpus)) if times[row] != 1]
    if wrong:
        raise RuntimeError(f"{len(wrong)} utterances of {corpus.name} were not decoded exactly once: {wrong[:5]}")
    return _joined(assembled, corpus, parts) if isinstance(corpus, ChunkedCorpus) else parts


def _joined(
    assembled: LoadedModel, corpus: ChunkedCorpus, parts: list[dict[int, Prediction]]
) -> list[dict[int, Prediction]]:
    said: dict[int, list[Prediction]] = {row: [] for row in range(len(corpus.whole))}
    ranks: dict[int, int] = {}
    for piece, rank, prediction in sorted(
        ((piece, rank, prediction) for rank, part in enumerate(parts) for piece, prediction in part.items()),
        key=lambda item: item[0],
    ):
        said[corpus.owners[piece]].append(prediction)
        ranks.setdefault(corpus.owners[piece], rank)
    joined: list[dict[int, Prediction]] = [{} for _ in parts]
    for row, predictions in said.items():
        # In a recording without any speech there is no piece to decode.
        whole = corpus.whole[row]
        found = _join(predictions, assembled.task_model, whole) if predictions else _nothing(assembled, whole)
        joined[ranks.get(row, 0)][row] = found
    return joined


def _join(pieces: list[Prediction], built: TaskModel, whole: Utterance) -> Prediction:
    """What was said in all of them; nothing is known of it when one could not be read."""
    values = [piece.value for piece in pieces if piece.value is not None]
    if len(values) < len(pieces):
        return replace(pieces[0], value=None, score=None)
    return replace(pieces[0], value=built.codec.join(values, whole), score=sum(piece.score or 0.0 for piece in pieces))


def _nothing(assembled: LoadedModel, utterance: Utterance) -> Prediction:
    return Prediction(utterance.id, "", assembled.task.reference(utterance), 0.0)
