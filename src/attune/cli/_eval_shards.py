"""`evaluate --shards`: rows are decoded here or by the workers of a Ray cluster, and kept in an object store."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import cluster_of, ranks_wanted
from attune.cli._shards import PATIENCE
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.display import Display
    from attune.site import Site
    from attune.sources import ObjectStore
    from attune.stages.eval_shards import Shard, ShardedEvaluation
    from attune.stages.eval_target import EvalTarget
    from attune.stages.evaluate import Evaluation


class DecodingWorker:
    """A Ray worker: opens the model and the corpus once, then decodes shards and writes them."""

    def __init__(
        self,
        shards: str,
        subject: tuple[str, Sequence[str]],
        on: str | None,
        batch: int | None,
        device: str,
        folder: str,
    ) -> None:
        from attune.site import this_site
        from attune.sources import ObjectStore
        from attune.stages.eval_shards import open_sharded
        from attune.stages.eval_target import open_eval_target
        from attune.world import World, choose_device

        if Path(folder).is_dir():
            os.chdir(folder)  # relative paths start at the folder of the command
        site, world = this_site(device=device), World(0, 1, choose_device(device))
        self.store = ObjectStore(shards, PATIENCE, lambda _: None)
        self.evaluation = open_sharded(open_eval_target(*subject, site), on, batch, site, world)

    def __call__(self, batch: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        from attune.stages.eval_shards import Shard

        return {"row": [self._write(Shard(**json.loads(item))) for item in batch["item"]]}

    def _write(self, shard: Shard) -> str:
        self.store.write(shard.name, self.evaluation.decode(shard))
        return shard.name


def require_shards(arguments: Namespace) -> None:
    """Refuse options that do not go together."""
    if arguments.launch == "ray" and not arguments.shards:
        raise ConfigError("--launch ray needs --shards s3://BUCKET/PREFIX/, where its workers keep what they decode.")
    if arguments.shards and "://" not in arguments.shards:
        raise ConfigError(f"--shards {arguments.shards} is not in an object store. Give s3://BUCKET/PREFIX/.")
    if arguments.shards and arguments.launch != "ray" and ranks_wanted(arguments) > 1:
        raise ConfigError("--shards decodes in one process here. Add --launch ray, or leave out --devices.")


def evaluate_shards(
    arguments: Namespace, subject: EvalTarget, on: str | None, site: Site, display: Display
) -> Evaluation:
    """Decode the shards that are not there yet, and score all of them."""
    from attune.sources import ObjectStore
    from attune.stages.eval_shards import open_sharded
    from attune.world import World, choose_device

    store = ObjectStore(arguments.shards, PATIENCE, lambda _: None)
    device = "cpu" if arguments.launch == "ray" else site.device
    evaluation = open_sharded(subject, on, arguments.batch, site, World(0, 1, choose_device(device)))
    shards = evaluation.shards()
    there = store.list().keys()
    missing = [shard for shard in shards if shard.name not in there]
    for done, _ in enumerate(_decoded(arguments, evaluation, on, missing, store), len(shards) - len(missing) + 1):
        display.progress(f"decoding {evaluation.corpus.name}", done, len(shards), "shards")
    display.say(f"{len(shards)} shards in {arguments.shards}, {len(missing)} of them new")
    return evaluation.score(store.read(shard.name) or b"" for shard in shards)


def _decoded(
    arguments: Namespace, evaluation: ShardedEvaluation, on: str | None, missing: Sequence[Shard], store: ObjectStore
) -> Iterator[str]:
    if missing and arguments.launch == "ray":
        from attune.launch.ray import map_on_ray

        subject = arguments.subject, tuple(arguments.overrides)
        how = (arguments.shards, subject, on, arguments.batch, arguments.device, str(Path.cwd()))
        items = [json.dumps(asdict(shard)) for shard in missing]
        yield from (row["row"] for row in map_on_ray(items, DecodingWorker, how, cluster_of(arguments), 1))
        return
    for shard in missing:
        store.write(shard.name, evaluation.decode(shard))
        yield shard.name
