"""Decode a corpus and score it. Every utterance is scored exactly once, or the evaluation says so and fails."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from attune.batches.load import Loaded, Reader, load
from attune.batches.plan import Budget, plan_in_order
from attune.corpora import Corpus
from attune.decoding.predict import decode, share
from attune.decoding.search import Search
from attune.recipe import DecodeConfig, Recipe, SearchConfig
from attune.report.tables import scores_json
from attune.site import Site
from attune.stages.assemble import Assembled
from attune.types import Prediction, Scores, Task
from attune.world import World


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
    sets: Mapping[str, Scores] = field(default_factory=dict)  # each manifest's own scores, when there are several

    @property
    def absent(self) -> int:
        """Utterances without a prediction."""
        return sum(prediction.value is None for prediction in self.predictions)

    def as_json(self) -> dict[str, Any]:
        """Scores as plain data, for scores.json and --json."""
        return {
            **scores_json(self.scores),
            "search": asdict(self.search),
            "ranks": list(self.rank_counts),
            **({"sets": {name: scores_json(scores) for name, scores in self.sets.items()}} if self.sets else {}),
        }


def search_of(config: SearchConfig | DecodeConfig) -> Search:
    """The recipe's search settings as the decoder takes them."""
    return Search(config.search, config.beam)


def evaluation_batches(
    assembled: Assembled, corpus: Corpus, batch: int | None, recipe: Recipe, site: Site, world: World
) -> Iterator[Loaded]:
    """This rank's share of a corpus: `batch` utterances at a time, or as much audio as a training micro-batch holds."""
    reader = Reader(corpus, assembled.built.prompt, drops_bad_rows=recipe.data.bad_rows == "drop")
    budget = Budget(recipe.batches.micro_seconds, recipe.batches.micro_utterances, 1)
    plan = plan_in_order(corpus.seconds, Budget(None, batch, 1) if batch else budget)
    return load(reader, share(plan, world), site.workers)


def evaluate(
    assembled: Assembled, corpus: Corpus, batches: Iterable[Loaded], search: Search, world: World
) -> Generator[Decoding, None, Evaluation]:
    """Decode on all ranks, merge by row and score; yields how far this rank has come."""
    mine: dict[int, Prediction] = {}
    problems: list[str] = []
    yield Decoding(corpus.name, 0, len(corpus))
    for decoded in decode(assembled.built.model, batches, search, world):
        problems.extend(decoded.problems)
        for row, hypothesis in zip(decoded.rows, decoded.hypotheses, strict=True):
            utterance = corpus[row]
            value = None if hypothesis is None else assembled.built.read(hypothesis)
            score = None if hypothesis is None else hypothesis.score
            mine[row] = Prediction(utterance.id, value, assembled.task.reference(utterance), score)
        yield Decoding(corpus.name, min(len(corpus), len(mine) * world.size), len(corpus))
    parts = world.gather((mine, problems))
    predictions = _merged(corpus, [part for part, _ in parts])
    counts = tuple(dict(assembled.task.score(list(part.values())).counts) for part, _ in parts)
    return Evaluation(
        corpus.name,
        predictions,
        assembled.task.score(predictions),
        counts,
        search,
        tuple(problem for _, found in parts for problem in found),
        _by_set(corpus, predictions, assembled.task),
    )


def _by_set(corpus: Corpus, predictions: Sequence[Prediction], task: Task) -> dict[str, Scores]:
    """The scores of each manifest alone."""
    if len(corpus.sets) == 1:
        return {}
    own: dict[str, list[Prediction]] = {name: [] for name in corpus.sets}
    for origin, prediction in zip(corpus.origins, predictions, strict=True):
        own[corpus.sets[origin]].append(prediction)
    return {name: task.score(part) for name, part in own.items() if part}


def _merged(corpus: Corpus, parts: list[dict[int, Prediction]]) -> tuple[Prediction, ...]:
    """All predictions in manifest order."""
    times = Counter(row for part in parts for row in part)
    wrong = [corpus[row].id for row in range(len(corpus)) if times[row] != 1]
    if wrong:
        raise RuntimeError(f"{len(wrong)} utterances of {corpus.name} were not decoded exactly once: {wrong[:5]}")
    together = {row: prediction for part in parts for row, prediction in part.items()}
    return tuple(together[row] for row in range(len(corpus)))
