"""The data of a recipe, as every rank sees it: manifests or a stream to train on, sets to score, the first example."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from attune.audio.augment import Augmenter, open_augmenter
from attune.audio.settings import AugmentConfig
from attune.batches.load import Reader, load, micros_from
from attune.batches.micro_batch import LoadedMicroBatch, MicroBatchPlan, Position
from attune.batches.mix import Share, draw, shares, turns
from attune.batches.plan import Budget, Plan, Rows, plan_epoch
from attune.batches.stream import Part, Shards, StreamRules, StreamSample, forget_all, forgetting, stream_micros
from attune.corpora import (
    SHARDS,
    Corpus,
    Selection,
    Skipped,
    expand_shards,
    fetch_manifest,
    open_corpus,
    read_samples,
    require_valid_rows,
    select,
    to_utterance,
)
from attune.errors import ConfigError, DataError
from attune.loading.pretrained import LoadedModel
from attune.recipe import Recipe, schedule_problems
from attune.run import Run
from attune.scorers import CROPPED, SEARCHED, WITHOUT_MASKS
from attune.site import Site
from attune.sources import locate, read_range, shown, size_of
from attune.types import SAMPLE_RATE, CachedRow, Hypothesis, Json, Utterance, tokens_of
from attune.world import World

SHOWN = 160  # characters of a target
SAMPLED_SHARDS, SAMPLED_BYTES = 64, 4096
SHOWN_LONGEST = 3  # utterances of a micro-batch


def open_split(recipe: Recipe, split: str, index_folder: Path, site: Site, world: World) -> Corpus:
    """One of the recipe's splits; a bad row fails it or is dropped, as the recipe says."""
    sources: tuple[str, ...] = getattr(recipe.data, split)
    return open_manifests(split, sources, recipe, index_folder, site, world)


def open_manifests(
    name: str, sources: tuple[str, ...], recipe: Recipe, index_folder: Path, site: Site, world: World
) -> Corpus:
    """Manifests as one corpus. The first rank fetches and scans, the others find everything ready."""
    if not world.is_first:
        world.barrier()
    paths = [fetch_manifest(source, site.cache) for source in sources]
    corpus = open_corpus(name, paths, index_folder, site.cache.watch)
    require_valid_rows(corpus, recipe.data.bad_rows)
    if world.is_first:
        world.barrier()
    return corpus


def training_rows(recipe: Recipe, corpus: Corpus) -> Selection:
    """The utterances that training uses: neither too short nor too long."""
    chosen = select(corpus, recipe.data.min_seconds, recipe.data.longest_seconds)
    if recipe.batches.micro_seconds is not None:
        chosen = _with_audio(chosen, corpus, recipe)
    if not len(chosen.rows):
        raise DataError(
            f"All {len(corpus)} training utterances are left out: {chosen.too_long} are longer than "
            f"data.max_seconds ({recipe.data.longest_seconds:g}), {chosen.too_short} shorter than "
            "data.min_seconds. Change these limits."
        )
    return chosen


def _with_audio(chosen: Selection, corpus: Corpus, recipe: Recipe) -> Selection:
    """Micro-batches by seconds need audio: a row without it is a bad row."""
    has_audio = corpus.seconds[chosen.rows] > 0
    if has_audio.all() or recipe.data.bad_rows == "drop":
        return replace(chosen, rows=chosen.rows[has_audio])
    first = corpus[int(chosen.rows[~has_audio][0])]
    raise DataError(
        f"{first.where}: utterance {first.id!r} has no audio, which batches.micro_seconds needs. Add its audio, "
        "set data.bad_rows=drop, or, for text tasks, set batches.micro_utterances."
    )


def budget_of(recipe: Recipe) -> Budget:
    """What a micro-batch may hold."""
    batches = recipe.batches
    return Budget(batches.micro_seconds, batches.micro_utterances, batches.micros_per_step)


def planner(recipe: Recipe, corpus: Corpus, selection: Selection) -> Callable[[int], Plan]:
    """The plan of any epoch; in a mix, a row number beyond the corpus's is a later turn of a row."""
    budget, mix = budget_of(recipe), recipe.data.mix
    if mix is None:
        return lambda epoch: plan_epoch(corpus.seconds, selection.rows, budget, recipe.seed, epoch)
    origins, total = corpus.origins, len(corpus)
    times = _turns(recipe, corpus, selection)

    def plan(epoch: int) -> Plan:
        drawn = draw(selection.rows, origins, times, total, recipe.seed, epoch)
        cut = plan_epoch(corpus.seconds[drawn % total], np.arange(len(drawn)), budget, recipe.seed, epoch)
        return replace(cut, order=drawn[cut.order])

    return plan


def with_steps(recipe: Recipe, corpus: Corpus | None, selection: Selection | None) -> Recipe:
    """The recipe with its steps: as it has them, or as many as its epochs have; a part of an epoch is rounded."""
    epochs = recipe.train.epochs
    if epochs is None:
        return recipe
    if corpus is None or selection is None:
        raise ConfigError("train.epochs needs a training set whose length is known. Set train.steps instead.")
    plan, whole = planner(recipe, corpus, selection), int(epochs)
    steps = sum(plan(epoch).steps for epoch in range(whole))
    if epochs > whole:
        steps += round((epochs - whole) * plan(whole).steps)
    train = replace(recipe.train, steps=max(1, steps), epochs=None)
    problems = [f"{key}: {message} ({epochs:g} epochs)" for key, message in schedule_problems(train)]
    if problems:
        raise ConfigError("\n".join(problems))
    return replace(recipe, train=train)


@dataclass(frozen=True, slots=True)
class WorstMicroBatch:
    """The micro-batch of a plan with the most padded audio; of several, the one with the longest utterance."""

    rows: Rows  # of the corpus
    padded_seconds: float
    longest: tuple[str, ...]  # the ids of its longest utterances


def worst_micro_batch(corpus: Corpus, plan: Plan) -> WorstMicroBatch:
    """What needs most memory; in a mix, a row may be there in a later turn."""
    seconds, sizes = corpus.seconds[plan.order % len(corpus)], np.diff(plan.bounds)
    longest = np.maximum.reduceat(seconds, plan.bounds[:-1])
    padded = np.round(longest * sizes, 3)
    worst = int(np.lexsort((longest, padded))[-1])
    rows = plan.order[plan.bounds[worst] : plan.bounds[worst + 1]] % len(corpus)
    by_length = rows[np.argsort(-corpus.seconds[rows], kind="stable")[:SHOWN_LONGEST]]
    ids = tuple(corpus[int(row)].id for row in by_length)
    return WorstMicroBatch(rows, float(longest[worst] * sizes[worst]), ids)


def mixed(recipe: Recipe, corpus: Corpus, selection: Selection) -> tuple[Share, ...]:
    """What an epoch has of each training set, when there are several."""
    if len(corpus.sets) == 1:
        return ()
    times = _turns(recipe, corpus, selection) if recipe.data.mix else [1.0] * len(corpus.sets)
    return shares(corpus.sets, corpus.seconds, selection.rows, corpus.origins, times)


def _turns(recipe: Recipe, corpus: Corpus, selection: Selection) -> list[float]:
    mix = recipe.data.mix
    own = [
        corpus.seconds[selection.rows[corpus.origins[selection.rows] == number]] for number in range(len(corpus.sets))
    ]
    empty = [name for name, seconds in zip(corpus.sets, own, strict=True) if not len(seconds)]
    if mix is None or empty:
        raise DataError(
            f"No utterance of {', '.join(empty)} is left for training, so it cannot be mixed in. "
            "Remove it, or change data.min_seconds and data.max_seconds."
        )
    return turns([float(seconds.sum()) for seconds in own], mix.weights, mix.temperature)


def training_reader(recipe: Recipe, corpus: Corpus | None, loaded: LoadedModel, site: Site) -> Reader:
    """How training reads an utterance: audio and target, refusing targets that no alignment can reach."""
    if recipe.augment and not loaded.task.needs_audio:
        raise ConfigError("augment: this task has no audio. Remove it.")
    if recipe.augment and recipe.augment.masks and loaded.task_model.scorer in WITHOUT_MASKS:
        raise ConfigError("augment.masks: this model has no features to mask. Remove it.")
    if recipe.augment and recipe.augment.crop_seconds and loaded.task_model.scorer not in CROPPED:
        raise ConfigError("augment.crop_seconds: this task needs whole utterances. Remove it.")
    built = loaded.task_model
    return Reader(
        corpus or (),
        target=built.codec.target,
        reads_audio=loaded.task.needs_audio,
        fits=lambda samples, target: built.model.frames(samples) >= built.codec.frames_needed(target),
        drops_bad_rows=recipe.data.bad_rows == "drop",
        drops_long_rows=recipe.data.drops_long_rows,
        pack=built.pack,
        augmenter=_augmenter(recipe.augment, built.limits.max_seconds, site) if recipe.augment else None,
        seed=recipe.seed,
        rows=len(corpus) if corpus and recipe.data.mix else None,
        cached=_cached(recipe, loaded),
        held=built.cache.held if built.cache else (),
        cached_needs_audio=built.scorer == "waveform",
    )


def _cached(recipe: Recipe, loaded: LoadedModel) -> Callable[[Utterance], CachedRow | None] | None:
    """What finds features that are kept; they are those of the recordings as they are."""
    cache, augment = loaded.task_model.cache, recipe.augment
    if cache and augment and replace(augment, masks=None) != AugmentConfig():
        raise ConfigError(
            "model.cache does not work with augment.crop_seconds, speeds, rooms, noise or gain_db, which change the "
            "audio (masks work). Remove them, or model.cache."
        )
    return cache.lookup() if cache else None


def recordings_of(recipe: Recipe, site: Site) -> str:
    """A fingerprint of the noises and rooms that a recipe names."""
    return _augmenter(recipe.augment, None, site).fingerprint if recipe.augment else ""


def _augmenter(augment: AugmentConfig, longest_seconds: float | None, site: Site) -> Augmenter:
    """What varies the audio, with the folders of recordings where they are on this machine."""
    parts = {"rooms": augment.rooms, "noise": augment.noise}
    local = {name: replace(part, folder=str(locate(part.folder, site.cache))) for name, part in parts.items() if part}
    return open_augmenter(replace(augment, **local), longest_seconds)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The training data of a recipe. `fingerprint` changes when its epochs would be others."""

    recipe: Recipe
    fingerprint: str
    parts: Mapping[str, str]  # manifest or shard → a fingerprint of its content
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

    def cache_notes(self, loaded: LoadedModel) -> Iterator[str]:
        """How large the features of an epoch will be, where they are kept; of a stream nobody knows before."""
        cache = loaded.task_model.cache
        if cache and self.corpus and self.selection:
            yield cache.note(float(self.corpus.seconds[self.selection.rows].sum()))

    def planned(self) -> Iterator[Utterance]:
        """The utterances in the order of the first epoch; of a stream, none."""
        corpus = self.corpus
        if corpus is None or self.selection is None:
            return iter(())
        return (corpus[int(row) % len(corpus)] for row in planner(self.recipe, corpus, self.selection)(0).order)

    def batches(
        self, position: Position, last_step: int, loaded: LoadedModel, site: Site, world: World
    ) -> Iterator[LoadedMicroBatch]:
        """This rank's micro-batches from a position on; nothing is read for steps after the last."""
        recipe = self.recipe
        reader = training_reader(recipe, self.corpus, loaded, site)
        pins = world.device.type == "cuda"
        if self.corpus and self.selection:
            plan = planner(recipe, self.corpus, self.selection)
            micros = micros_from(position, plan, world.rank, world.size, recipe.train.strict)
            return load(reader, _until(last_step, micros), site.workers, pins)
        if self.shards is None:
            raise RuntimeError("a training set has either a corpus or shards")
        part = Part(world.rank, world.size, recipe.train.strict)
        micros = stream_micros(position, self.shards, _rules(recipe), part)
        return forgetting(load(reader, _until(last_step, micros), site.workers, pins), self.shards)

    def close(self) -> None:
        """Remove what only training needed."""
        if self.shards:
            forget_all(self.shards)


def _until(last_step: int, micros: Iterator[MicroBatchPlan]) -> Iterator[MicroBatchPlan]:
    return takewhile(lambda micro: micro.position.step <= last_step, micros)


def open_training_set(recipe: Recipe, run: Run, site: Site, world: World, resumes: bool) -> TrainingSet:
    """What the recipe learns from, as every rank sees it."""
    if recipe.data.stream is None:
        corpus = open_split(recipe, "train", run.data, site, world)
        return TrainingSet(recipe, corpus.fingerprint, corpus.parts, corpus, training_rows(recipe, corpus))
    shards = open_stream(recipe, run.folder, site)
    if not resumes:
        forget_all(shards)  # of an earlier run in this folder
    parts = _sampled(shards.names) if world.is_first else {}
    return TrainingSet(recipe, shards.fingerprint, parts, shards=shards)


def _sampled(shards: Sequence[str]) -> dict[str, str]:
    """Fingerprints of shards by their sizes, first bytes and middle ones; of many shards, some from all over."""
    chosen = sorted({shards[len(shards) * number // SAMPLED_SHARDS] for number in range(SAMPLED_SHARDS)})
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(map(shown, chosen), pool.map(_shard_print, chosen), strict=True))


def _shard_print(shard: str) -> str:
    size = size_of(shard)
    length = min(size, SAMPLED_BYTES)
    blocks = [read_range(shard, start, length) for start in (0, (size - length) // 2)]
    return hashlib.sha256(b"".join([str(size).encode(), *blocks])).hexdigest()[:16]


def open_stream(recipe: Recipe, run: Path, site: Site) -> Shards:
    """The recipe's shards; what is read of them is put into the cache, apart from other runs."""
    stream = recipe.data.stream
    if stream is None:
        raise RuntimeError("the recipe has no data.stream")
    names = expand_shards(stream.shards, SHARDS)
    shards = Shards(names, samples_in, stream.window, recipe.seed, Path())
    own = hashlib.sha256(f"{run.absolute()} {recipe.seed} {shards.fingerprint}".encode()).hexdigest()[:16]
    return replace(shards, folder=(site.cache.folder / "stream" / own).absolute())


def _rules(recipe: Recipe) -> StreamRules:
    data = recipe.data
    return StreamRules(budget_of(recipe), recipe.seed, data.min_seconds, data.longest_seconds, data.bad_rows == "drop")


def samples_in(shard: str, start: int) -> Iterator[StreamSample]:
    """The samples of a shard from a byte or row on, in their order; what cannot be one comes with the reason."""
    for sample in read_samples(shard, start):
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


@dataclass(frozen=True, slots=True)
class Example:
    """An utterance as the model will see it."""

    id: str
    reference: Json
    target: str  # as the codec describes it
    tokens: int | None  # where the target is tokens, how many
    reads: Json  # the text or label that the target stands for
    seconds: float
    frames: int
    frames_needed: int

    @property
    def target_line(self) -> str:
        """The target, not longer than a line; and how many tokens it has."""
        shown = self.target if len(self.target) <= SHOWN else f"{self.target[:SHOWN].rsplit(' ', 1)[0]} …"
        return shown if self.tokens is None else f"{shown} ({self.tokens} tokens)"


def first_example(utterances: Iterable[Utterance], loaded: LoadedModel) -> Example | None:
    """The first utterance that has a target."""
    for utterance in utterances:
        try:
            target = loaded.task_model.codec.target(utterance)
        except DataError:  # whoever trains on it, or looks at all of them, will say so
            continue
        return Example(
            id=utterance.id,
            reference=loaded.task.reference(utterance),
            target=loaded.task_model.codec.describe(target),
            tokens=len(target) if isinstance(target, tuple) else None,
            reads=read_back(utterance, loaded),
            seconds=utterance.seconds,
            frames=frames_of(utterance, loaded),
            frames_needed=loaded.task_model.codec.frames_needed(target),
        )
    return None


def read_back(utterance: Utterance, loaded: LoadedModel) -> Json:
    """The value that the target of an utterance stands for, where targets are tokens."""
    codec = loaded.task_model.codec
    target = codec.target(utterance)
    is_found = loaded.task_model.scorer in SEARCHED and isinstance(target, tuple)
    return codec.read(Hypothesis(tokens_of(target), 0.0)) if is_found else None


def frames_of(utterance: Utterance, loaded: LoadedModel) -> int:
    """How many frames the encoder makes of an utterance."""
    frames: int = loaded.task_model.model.frames(round(utterance.seconds * SAMPLE_RATE))
    return frames
