"""Decode a corpus and score it. Every utterance is scored exactly once, or the evaluation says so and fails."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from attune.batches.load import Loaded, Reader, load, readers_watched
from attune.batches.plan import Budget, plan_in_order
from attune.corpora import Corpus
from attune.decoding.ngram import read_arpa
from attune.decoding.predict import decode, share
from attune.decoding.search import Search
from attune.errors import ModelError
from attune.recipe import DecodeConfig, Recipe, SearchConfig
from attune.report.tables import scores_json
from attune.site import Site
from attune.sources import locate
from attune.stages.assemble import Assembled
from attune.types import Built, Prediction, Scores
from attune.world import World

DECODED_AT_ONCE = 4  # micro-batches: without gradients there is room for more, and a search is as long as one of them


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
        }


def search_of(config: SearchConfig | DecodeConfig, built: Built, site: Site, world: World) -> Search:
    """The recipe's search settings as the decoder takes them, with the language model they name."""
    plain = Search(config.search, config.beam, precision=config.precision)
    if config.lm is None:
        return plain
    if not built.pieces:
        raise ModelError(
            f"decode.lm: {config.lm} cannot be used: this family does not search with a language model. Leave it out."
        )
    model = read_arpa(locate(config.lm, site.cache), built.pieces, world.device)
    return replace(plain, lm=config.lm, lm_weight=config.lm_weight, language_model=model)


def evaluation_batches(
    assembled: Assembled, corpus: Corpus, batch: int | None, recipe: Recipe, site: Site, world: World
) -> Iterator[Loaded]:
    """This rank's share of a corpus: `batch` utterances at a time, or as many as a few training micro-batches hold."""
    reader = Reader(corpus, assembled.built.prompt, drops_bad_rows=recipe.data.bad_rows == "drop")
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
    assembled: Assembled, corpus: Corpus, batches: Iterable[Loaded], search: Search, world: World
) -> Generator[Decoding, None, Evaluation]:
    """Decode on all ranks, merge by row and score; yields how far this rank has come."""
    mine: dict[int, Prediction] = {}
    problems: list[str] = []
    yield Decoding(corpus.name, 0, len(corpus))
    with readers_watched():
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
    scores = assembled.task.score(predictions)
    counts = (
        (scores.counts,)
        if world.size == 1
        else tuple(assembled.task.score(list(part.values())).counts for part, _ in parts)
    )
    return Evaluation(
        corpus.name,
        predictions,
        scores,
        tuple(map(dict, counts)),
        search,
        tuple(problem for _, found in parts for problem in found),
    )


def _merged(corpus: Corpus, parts: list[dict[int, Prediction]]) -> tuple[Prediction, ...]:
    """All predictions in manifest order."""
    times = Counter(row for part in parts for row in part)
    wrong = [corpus[row].id for row in range(len(corpus)) if times[row] != 1]
    if wrong:
        raise RuntimeError(f"{len(wrong)} utterances of {corpus.name} were not decoded exactly once: {wrong[:5]}")
    together = {row: prediction for part in parts for row, prediction in part.items()}
    return tuple(together[row] for row in range(len(corpus)))
