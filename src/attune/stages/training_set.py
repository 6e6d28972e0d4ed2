"""What a run learns from: manifests, which are known row by row, or a stream of shards, which is not."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from attune.batches.load import LoadedMicroBatch, Position, load, micros_from
from attune.batches.mix import Share
from attune.batches.stream import Part, Shards, StreamRules, StreamSample, forget_all, forgetting, stream_micros
from attune.corpora import Corpus, Selection, Skipped, expand_shards, read_shard, to_utterance
from attune.recipe import Recipe
from attune.run import Run
from attune.site import Site
from attune.sources import shown
from attune.stages.data import budget_of, mixed, open_split, planner, training_reader, training_rows
from attune.stages.pretrained import LoadedModel
from attune.training import checkpoint
from attune.types import Utterance
from attune.world import World


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The training data of a recipe. `fingerprint` changes when its epochs would be others."""

    recipe: Recipe
    fingerprint: str
    corpus: Corpus | None = None
    selection: Selection | None = None
    shards: Shards | None = None

    def __iter__(self) -> Iterator[Utterance]:
        """Every utterance: for a stream, a pass over all of it."""
        return iter(self.corpus if self.corpus is not None else _every(self.shards))

    @property
    def mix(self) -> tuple[Share, ...]:
        """What an epoch has of each set, when there are several."""
        return mixed(self.recipe, self.corpus, self.selection) if self.corpus and self.selection else ()

    def planned(self) -> Iterator[Utterance]:
        """The utterances in the order of the first epoch; of a stream, none."""
        corpus = self.corpus
        if corpus is None or self.selection is None:
            return iter(())
        return (corpus[int(row) % len(corpus)] for row in planner(self.recipe, corpus, self.selection)(0).order)

    def batches(
        self, position: Position, assembled: LoadedModel, site: Site, world: World
    ) -> Iterator[LoadedMicroBatch]:
        """This rank's micro-batches from a position on."""
        recipe = self.recipe
        reader = training_reader(recipe, self.corpus, assembled, site)
        pins = world.device.type == "cuda"
        if self.corpus and self.selection:
            plan = planner(recipe, self.corpus, self.selection)
            micros = micros_from(position, plan, world.rank, world.size, recipe.train.strict)
            return load(reader, micros, site.workers, pins)
        if self.shards is None:
            raise RuntimeError("a training set has either a corpus or shards")
        part = Part(world.rank, world.size, recipe.train.strict)
        micros = stream_micros(position, self.shards, _rules(recipe), part)
        return forgetting(load(reader, micros, site.workers, pins), self.shards)

    def close(self) -> None:
        """Remove what only training needed."""
        if self.shards:
            forget_all(self.shards)


def open_training_set(recipe: Recipe, run: Run, site: Site, world: World) -> TrainingSet:
    """What the recipe learns from, as every rank sees it."""
    if recipe.data.stream is None:
        corpus = open_split(recipe, "train", run.data, site, world)
        return TrainingSet(recipe, corpus.fingerprint, corpus, training_rows(recipe, corpus))
    shards = open_stream(recipe, run.folder, site)
    if checkpoint.newest(run.checkpoints)[0] is None:
        forget_all(shards)  # of a run that was here before and is not gone on with
    return TrainingSet(recipe, shards.fingerprint, shards=shards)


def open_stream(recipe: Recipe, run: Path, site: Site) -> Shards:
    """The recipe's shards; what is read of them is put into the cache, apart from other runs."""
    stream = recipe.data.stream
    if stream is None:
        raise RuntimeError("the recipe has no data.stream")
    names = expand_shards(stream.shards)
    shards = Shards(names, samples_in, stream.window, recipe.seed, Path())
    own = hashlib.sha256(f"{run.absolute()} {recipe.seed} {shards.fingerprint}".encode()).hexdigest()[:16]
    return replace(shards, folder=(site.cache.folder / "stream" / own).absolute())


def _rules(recipe: Recipe) -> StreamRules:
    data = recipe.data
    return StreamRules(budget_of(recipe), recipe.seed, data.min_seconds, data.longest_seconds, data.bad_rows == "drop")


def samples_in(shard: str, start: int) -> Iterator[StreamSample]:
    """The samples of a shard from a byte on, in their order; what cannot be one comes with the reason."""
    for sample in read_shard(shard, start):
        if isinstance(sample.found, Skipped):
            yield StreamSample(None, b"", sample.end, f"{sample.found.which}: {sample.found.reason}")
        else:
            row = sample.found
            where = f"{shown(shard)}: {row.id}"
            yield StreamSample(to_utterance(row, shard, row.seconds or 0.0, where), sample.content, sample.end)


def _every(shards: Shards | None) -> Iterable[Utterance]:
    for shard in shards.names if shards else ():
        for sample in samples_in(shard, 0):
            if sample.utterance:
                yield sample.utterance
