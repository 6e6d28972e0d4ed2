"""Evaluation in shards: workers on any machines decode rows, and a second command decodes only what is missing.

A shard is an object that appears whole. Its name is made of the weights, the settings, the data and its rows, so that
one that is there is never decoded again, and never mistaken for another's.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from attune.config import flatten
from attune.corpora import Corpus, CorpusSample
from attune.decoding.search import Search
from attune.decoding.settings import SearchConfig
from attune.errors import ConfigError
from attune.files import sha256
from attune.loading.language_models import search_of
from attune.loading.lock import as_locked
from attune.loading.pretrained import LoadedModel, Pretrained, open_pretrained
from attune.recipe import to_plain
from attune.site import Site
from attune.sources import locate
from attune.stages import drain
from attune.stages.eval_target import EvalTarget, load_eval_target, open_for_evaluation
from attune.stages.evaluate import (
    DecodedPart,
    Evaluation,
    as_scored,
    by_row,
    decode_part,
    evaluation_batches,
    score_parts,
    scoring_context,
)
from attune.types import Prediction
from attune.world import World

UTTERANCES = 256  # in a shard: what is lost when its worker is
DECIDING = ("task.", "model.", "data.long_rows", "data.bad_rows")  # settings that predictions depend on, beside decode
PLACES = ("model.weights", "model.cache")  # which differ from machine to machine
FILES = ("waveform", "features")  # scorers whose predictions are files


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows of a corpus that follow one another, and the name of their predictions."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ShardedEvaluation:
    """A model and a corpus that are decoded some rows at a time."""

    target: EvalTarget
    loaded: LoadedModel
    corpus: Corpus
    search: Search
    batch: int | None
    site: Site
    world: World

    def shards(self) -> list[Shard]:
        """All rows."""
        decode = self.target.pretrained.recipe.decode
        key = decoding_key(self.target.pretrained, decode.final or decode, self.search, self.corpus, self.site)
        name = f"{self.corpus.name}-{key}-{UTTERANCES}"
        starts = range(0, len(self.corpus), UTTERANCES)
        return [
            Shard(f"{name}-{start // UTTERANCES:05d}.jsonl", start, min(start + UTTERANCES, len(self.corpus)))
            for start in starts
        ]

    def decode(self, shard: Shard) -> bytes:
        """The predictions of a shard as lines of JSON, after a line about all of them."""
        rows = CorpusSample(self.corpus, range(shard.start, shard.stop))
        corpus, recipe = as_scored(rows, self.loaded, self.target.pretrained.recipe), self.target.pretrained.recipe
        size = self.batch or recipe.decode.final_batch
        batches = evaluation_batches(self.loaded, corpus, size, recipe, self.site, self.world)
        with tempfile.TemporaryDirectory() as scratch:
            context = scoring_context(self.loaded.task, corpus, Path(scratch), self.site)
            part = drain(decode_part(self.loaded, corpus, batches, self.search, context, self.world))
        [predictions] = by_row(self.loaded, corpus, [part.predictions])
        return as_lines([predictions[row] for row in range(len(rows))], part.problems, part.seconds)

    def score(self, contents: Iterable[bytes]) -> Evaluation:
        """The scores of all shards, given in their order."""
        whole = from_lines(contents)
        with tempfile.TemporaryDirectory() as scratch:
            context = scoring_context(self.loaded.task, self.corpus, Path(scratch), self.site)
            return score_parts(self.loaded, self.corpus, [whole], self.search, context)


def open_sharded(target: EvalTarget, on: str | None, batch: int | None, site: Site, world: World) -> ShardedEvaluation:
    """What a worker needs to decode any shard, and the command to put them together."""
    recipe = target.pretrained.recipe
    loaded = load_eval_target(target.pretrained, site, world)
    if loaded.task_model.scorer in FILES:
        raise ConfigError("--shards keeps texts, labels and numbers; this task predicts files. Evaluate without it.")
    site = as_locked(target.locked_by, site) if target.locked_by else site
    folder = target.run.data if target.run else site.cache.folder / "manifests"
    corpus = open_for_evaluation(target, on, folder, site, world)
    search = search_of(recipe.decode.final or recipe.decode, loaded.task_model, site, world)
    return ShardedEvaluation(target, loaded, corpus, search, batch, site, world)


def decoding_key(pretrained: Pretrained, config: SearchConfig, search: Search, corpus: Corpus, site: Site) -> str:
    """Names what is decoded: the same key, the same predictions. Files count by their content."""
    plain = flatten(to_plain(pretrained.recipe))
    settings = {key: value for key, value in plain.items() if key.startswith(DECIDING) and key not in PLACES}
    lm = _content_of_lm(locate(search.lm, site.cache)) if search.lm else None
    phrases = search.phrases.phrases if search.phrases else ()
    how = {**asdict(config), "batch": None, "final": None, "lm": lm, "phrases": phrases}
    key = json.dumps([settings, how, _content(pretrained.weights), corpus.fingerprint], default=str)
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def as_lines(predictions: Sequence[Prediction], problems: Sequence[str], seconds: float) -> bytes:
    """Predictions as lines of JSON, after a line about all of them."""
    lines = [{"problems": list(problems), "seconds": seconds}, *map(asdict, predictions)]
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()


def from_lines(contents: Iterable[bytes]) -> DecodedPart:
    """What `as_lines` wrote of rows that follow one another."""
    parts = [list(map(json.loads, content.decode().removesuffix("\n").split("\n"))) for content in contents]
    predictions = [Prediction(**row) for _, *rows in parts for row in rows]
    problems = [problem for head, *_ in parts for problem in head["problems"]]
    return DecodedPart(dict(enumerate(predictions)), problems, sum(head["seconds"] for head, *_ in parts))


def _content_of_lm(path: Path) -> str:
    return _content(open_pretrained(path).weights if path.is_dir() else path)


def _content(weights: Path) -> str:
    """What the weights are, wherever they lie."""
    files = [weights] if weights.is_file() else sorted(path for path in weights.rglob("*") if path.is_file())
    return hashlib.sha256("".join(map(sha256, files)).encode()).hexdigest()
