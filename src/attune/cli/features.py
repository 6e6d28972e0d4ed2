"""Compute the features of a frozen upstream ahead of training, on one machine or many."""

from __future__ import annotations

import json
import os
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import add_launch, add_site, cluster_of, ranks_wanted, site_of
from attune.cli._shards import PATIENCE
from attune.cli._terminal import add_json, add_overrides, print_json
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.recipe import Recipe
    from attune.stages.feature_shards import FeatureShard

HELP = "compute a frozen upstream's features into an object store, for model.cache; the same command goes on"
EXAMPLE = "attune features recipe.yaml --to s3://speech/features/ --launch ray --devices 2-8"
SPLITS = ("train", "dev", "test")


class FeatureWorker:
    """Opens the model and the data once, then computes shards and uploads them; also as a Ray worker."""

    def __init__(self, to: str, recipe: Recipe, on: Sequence[str], device: str, folder: str) -> None:
        from attune.site import this_site
        from attune.sources import ObjectStore
        from attune.stages.feature_shards import open_features
        from attune.world import World, choose_device

        if Path(folder).is_dir():
            os.chdir(folder)  # relative paths start at the folder of the command
        self.scratch = tempfile.TemporaryDirectory()
        self.store = ObjectStore(to, PATIENCE, lambda _: None)
        site, world = this_site(device=device), World(0, 1, choose_device(device))
        self.features = open_features(recipe, on, Path(self.scratch.name), site, world)

    def __call__(self, batch: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """As Ray Data calls it: shards as JSON in, names out."""
        from attune.stages.feature_shards import FeatureShard

        return {"row": [self.write(FeatureShard(**json.loads(item))) for item in batch["item"]]}

    def write(self, shard: FeatureShard) -> str:
        """Compute a shard, and upload it whole."""
        path = Path(self.scratch.name) / "shard"
        self.features.compute(shard, path)
        self.store.upload(shard.name, path)
        return shard.name


def add_arguments(parser: ArgumentParser) -> None:
    """Take a recipe, where to put the features, and who computes them."""
    parser.add_argument("recipe", type=Path, help="recipe with a frozen upstream")
    add_overrides(parser)
    parser.add_argument("--to", required=True, metavar="s3://BUCKET/PREFIX/", help="where the features are kept")
    parser.add_argument(
        "--on", action="append", choices=SPLITS, help="train, dev or test; may be repeated (default: all there are)"
    )
    add_launch(parser)
    add_site(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Compute the shards that are not there yet."""
    from attune import recipe
    from attune.sources import ObjectStore

    if "://" not in arguments.to:
        raise ConfigError(f"--to {arguments.to} is not in an object store. Give s3://BUCKET/PREFIX/.")
    if arguments.launch != "ray" and ranks_wanted(arguments) > 1:
        raise ConfigError("Here, features are computed by one process. Add --launch ray, or leave out --devices.")
    loaded = recipe.load(arguments.recipe, arguments.overrides).recipe
    on = arguments.on or [split for split in SPLITS if getattr(loaded.data, split)]
    device = "cpu" if arguments.launch == "ray" else site_of(arguments).device
    here = FeatureWorker(arguments.to, loaded, on, device, str(Path.cwd()))
    shards = here.features.shards()
    there = ObjectStore(arguments.to, PATIENCE, lambda _: None).list().keys()
    missing = [shard for shard in shards if shard.name not in there]
    for done, name in enumerate(_written(arguments, here, loaded, on, missing), 1):
        if not arguments.json:
            print(f"{name} ({done} of {len(missing)} shards)", flush=True)
    if arguments.json:
        print_json({"to": arguments.to, "shards": len(shards), "written": len(missing)})
    else:
        print(
            f"{len(shards)} shards in {arguments.to}, {len(missing)} of them new. Train with model.cache={arguments.to}"
        )
    return 0


def _written(
    arguments: Namespace, here: FeatureWorker, recipe: Recipe, on: Sequence[str], missing: Sequence[FeatureShard]
) -> Iterator[str]:
    if missing and arguments.launch == "ray":
        from attune.launch.ray import map_on_ray

        how = (arguments.to, recipe, tuple(on), arguments.device, str(Path.cwd()))
        items = [json.dumps(asdict(shard)) for shard in missing]
        yield from (row["row"] for row in map_on_ray(items, FeatureWorker, how, cluster_of(arguments), 1))
        return
    yield from map(here.write, missing)
