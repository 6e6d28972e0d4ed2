"""Transcripts in shards of an object store: workers write them, and a second command does only those that are missing.

A shard is an object that appears whole. Its name is made of what is in it: the model, the options and the recordings.
"""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attune.cli._ranks import cluster_of
from attune.cli._recordings import audio_files
from attune.cli._terminal import print_json

RECORDINGS = 32  # in a shard: what is lost when its worker is
PATIENCE = 300.0  # seconds that a store may be away


class ShardWorker:
    """Transcribes shards and writes them; `worker` is given batches of paths."""

    def __init__(self, address: str, worker: type, given: Sequence[object]) -> None:
        from attune.sources import ObjectStore

        self.store, self.worker = ObjectStore(address, PATIENCE, lambda _: None), worker(*given)

    def __call__(self, batch: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        return {"row": [self._write(**json.loads(item)) for item in batch["item"]]}

    def _write(self, name: str, paths: Sequence[str]) -> str:
        rows = self.worker({"item": paths})["row"]
        self.store.write(name, "".join(f"{row}\n" for row in rows).encode())
        problems = [each["problem"] for each in map(json.loads, rows) if each["problem"]]
        return json.dumps({"name": name, "recordings": len(rows), "problems": problems})


def write_shards(arguments: Namespace, worker: type, given: Sequence[object]) -> int:
    """Write the shards that are not there yet, here or on a Ray cluster; exit 2 when a recording could not be read."""
    from attune.sources import ObjectStore

    wanted = _shards(list(audio_files(arguments.files)), given)
    there = ObjectStore(arguments.out, PATIENCE, lambda _: None).list().keys()
    missing = [json.dumps({"name": name, "paths": paths}) for name, paths in wanted.items() if name not in there]
    done: list[dict[str, Any]] = []
    for each in _written(arguments, missing, worker, given):
        done.append(each)
        if not arguments.json:
            print(f"{each['name']}: {each['recordings']} recordings ({len(done)} of {len(missing)} shards)", flush=True)
    problems = [problem for each in done for problem in each["problems"]]
    if arguments.json:
        print_json({"out": arguments.out, "shards": len(wanted), "written": len(done), "problems": problems})
    else:
        print(f"{len(wanted)} shards in {arguments.out}, {len(done)} of them new", *problems, sep="\n")
    return 2 if problems else 0


def _shards(paths: Sequence[str], given: Sequence[object]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for start in range(0, len(paths), RECORDINGS):
        piece = list(paths[start : start + RECORDINGS])
        content = hashlib.sha256(json.dumps([list(map(str, given)), piece]).encode()).hexdigest()[:12]
        named[f"part-{start // RECORDINGS:05d}-{content}.jsonl"] = piece
    return named


def _written(
    arguments: Namespace, missing: Sequence[str], worker: type, given: Sequence[object]
) -> Iterator[dict[str, Any]]:
    if not missing:
        return
    if arguments.launch == "ray":
        from attune.launch.ray import map_on_ray

        how = (arguments.out, worker, given)
        yield from (json.loads(row["row"]) for row in map_on_ray(missing, ShardWorker, how, cluster_of(arguments), 1))
        return
    write = ShardWorker(arguments.out, worker, given)
    yield from (json.loads(write({"item": [item]})["row"][0]) for item in missing)
