"""Features of a frozen upstream in shards: workers on any machines compute them, a second command only what is missing.

A shard is an object that appears whole, below the fingerprint of the upstream that made it. Its name is made of the
data and its rows, so one that is there is never computed again. Training with `model.cache` at that address reads them.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from attune.batches.plan import Rows
from attune.corpora import Corpus, CorpusSample
from attune.errors import ConfigError
from attune.files import one_at_a_time
from attune.loading.begin import begin_model
from attune.loading.data import open_split, training_rows
from attune.loading.place import PATIENT_SHARE
from attune.loading.pretrained import LoadedModel, ModelFolders
from attune.recipe import Recipe
from attune.site import Site
from attune.sources import STORE_ADVICE, ObjectStore, is_remote
from attune.stages.evaluate import evaluation_batches
from attune.types import FeatureCache
from attune.world import World

UTTERANCES = 32  # in a shard: what is lost when its worker is
COPIES = "features"  # in the cache
ENDING = ".safetensors"
DOWNLOADS = 4  # at once


@dataclass(frozen=True, slots=True)
class FeatureShard:
    """Some utterances of a split, by their place among those that are computed."""

    name: str
    split: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ShardedFeatures:
    """A model and its data, whose features are computed some utterances at a time."""

    recipe: Recipe
    loaded: LoadedModel
    cache: FeatureCache
    splits: dict[str, tuple[Corpus, Rows]]
    site: Site
    world: World

    def shards(self) -> list[FeatureShard]:
        """All utterances that training and evaluation read."""
        return [shard for split, (corpus, rows) in self.splits.items() for shard in self._shards(split, corpus, rows)]

    def _shards(self, split: str, corpus: Corpus, rows: Rows) -> Iterator[FeatureShard]:
        content = json.dumps([corpus.fingerprint, hashlib.sha256(rows.tobytes()).hexdigest(), UTTERANCES])
        name = f"{self.cache.folder().name}/{split}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
        for start in range(0, len(rows), UTTERANCES):
            stop = min(start + UTTERANCES, len(rows))
            yield FeatureShard(f"{name}-{start // UTTERANCES:05d}{ENDING}", split, start, stop)

    def compute(self, shard: FeatureShard, path: Path) -> None:
        """Write the features of a shard to a file."""
        corpus, rows = self.splits[shard.split]
        some = CorpusSample(corpus, rows[shard.start : shard.stop])
        batches = evaluation_batches(self.loaded, some, None, self.recipe, self.site, self.world)
        self.cache.compute((each.batch.to(self.world.device) for each in batches if each.batch), path)


def open_features(recipe: Recipe, on: Sequence[str], folder: Path, site: Site, world: World) -> ShardedFeatures:
    """What a worker needs to compute any shard; `folder` is its own, for the time being."""
    recipe = _with_cache(recipe, str(folder / "kept"))
    corpora = {split: open_split(recipe, split, folder, site, world) for split in dict.fromkeys(("train", *on))}
    loaded = begin_model(recipe, corpora["train"], ModelFolders(folder / "task", folder / "assets"), site, world).loaded
    loaded.task_model.module.to(world.device)
    if loaded.task_model.cache is None:
        raise ConfigError(f"The family {recipe.model.family!r} keeps no features. Use model.family=ssl.")
    splits = {split: (corpora[split], _rows(recipe, split, corpora[split])) for split in on}
    return ShardedFeatures(recipe, loaded, loaded.task_model.cache, splits, site, world)


def _rows(recipe: Recipe, split: str, corpus: Corpus) -> Rows:
    return training_rows(recipe, corpus).rows if split == "train" else np.arange(len(corpus))


def fetch_features(recipe: Recipe, site: Site) -> Recipe:
    """The recipe with features that are in an object store on this machine, in its cache, where more are kept too."""
    address = getattr(recipe.model.config, "cache", None)
    if address is None or not is_remote(address):
        return recipe
    folder = site.cache.folder / COPIES / hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:12]
    with one_at_a_time(folder / ".copying"):  # one rank of a machine copies, and the others find everything
        patience, advice = PATIENT_SHARE * site.timeout, f"{STORE_ADVICE} --timeout allows longer."
        _copy(ObjectStore(address, patience, lambda _: None, advice=advice), folder)
    return _with_cache(recipe, str(folder))


def _copy(store: ObjectStore, folder: Path) -> None:
    names = [name for name in store.list() if name.endswith(ENDING) and not {"/", ".."} & {*Path(name).parts}]
    missing = [name for name in names if not (folder / name).is_file()]
    with ThreadPoolExecutor(DOWNLOADS) as pool:
        list(pool.map(lambda name: store.download(name, folder / name), missing))


def _with_cache(recipe: Recipe, cache: str) -> Recipe:
    if "cache" not in recipe.model.config.__dataclass_fields__:
        raise ConfigError(f"The family {recipe.model.family!r} keeps no features. Use model.family=ssl.")
    return replace(recipe, model=replace(recipe.model, config=replace(recipe.model.config, cache=cache)))
