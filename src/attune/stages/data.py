"""The corpora of a recipe, as every rank sees them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from attune.audio.augment import Augmenter, open_augmenter
from attune.audio.settings import AugmentConfig
from attune.batches.load import Reader
from attune.batches.mix import Share, draw, shares, turns
from attune.batches.plan import Budget, Plan, plan_epoch
from attune.corpora import Corpus, Selection, fetch_manifest, open_corpus, require_valid_rows, select
from attune.errors import DataError
from attune.recipe import Recipe
from attune.site import Site
from attune.sources import locate
from attune.stages.pretrained import LoadedModel
from attune.world import World


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
    corpus = open_corpus(name, paths, index_folder)
    require_valid_rows(corpus, recipe.data.bad_rows)
    if world.is_first:
        world.barrier()
    return corpus


def training_rows(recipe: Recipe, corpus: Corpus) -> Selection:
    """The utterances that training uses: neither too short nor too long."""
    chosen = select(corpus, recipe.data.min_seconds, recipe.data.longest_seconds)
    if not len(chosen.rows):
        raise DataError(
            f"No training utterance is left of {len(corpus)}: {chosen.too_long} are longer than data.max_seconds "
            f"({recipe.data.longest_seconds:g}) and {chosen.too_short} shorter than data.min_seconds."
        )
    return chosen


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
        raise DataError(f"Nothing of {', '.join(empty)} is left to train on, so it cannot be mixed in.")
    return turns([float(seconds.sum()) for seconds in own], mix.weights, mix.temperature)


def training_reader(recipe: Recipe, corpus: Corpus | None, assembled: LoadedModel, site: Site) -> Reader:
    """How training reads an utterance: audio and target, refusing targets that no alignment can reach."""
    built = assembled.task_model
    return Reader(
        corpus or (),
        target=built.codec.target,
        fits=lambda samples, target: built.model.frames(samples) >= built.codec.frames_needed(target),
        drops_bad_rows=recipe.data.bad_rows == "drop",
        drops_long_rows=recipe.data.drops_long_rows,
        pack=built.pack,
        augmenter=_augmenter(recipe.augment, built.limits.max_seconds, site) if recipe.augment else None,
        seed=recipe.seed,
        rows=len(corpus) if corpus and recipe.data.mix else None,
    )


def recordings_of(recipe: Recipe, site: Site) -> str:
    """A fingerprint of the noises and rooms that a recipe names."""
    return _augmenter(recipe.augment, None, site).fingerprint if recipe.augment else ""


def _augmenter(augment: AugmentConfig, longest_seconds: float | None, site: Site) -> Augmenter:
    """What varies the audio, with the folders of recordings where they are on this machine."""
    parts = {"rooms": augment.rooms, "noise": augment.noise}
    local = {name: replace(part, folder=str(locate(part.folder, site.cache))) for name, part in parts.items() if part}
    return open_augmenter(replace(augment, **local), longest_seconds)  # type: ignore[arg-type]
