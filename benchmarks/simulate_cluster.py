"""What a step costs outside of compute on 8 … 512 ranks, simulated one rank after the other on this machine.

    python benchmarks/simulate_cluster.py --ranks 8 64 512

Each rank runs attune's own plan, loader and checkpoint code on a real manifest; only audio, model and network are left
out. The work of a rank stays the same: a step has `--slots` micro-batches for each. The figure that counts is the
CPU time of the slowest rank in a step, as all wait for it.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from attune.batches.load import Reader, load, micros_from
from attune.batches.micro_batch import LoadedMicroBatch, Position
from attune.batches.plan import Budget, Plan, plan_epoch
from attune.corpora import Corpus, open_corpus
from attune.training import checkpoint
from attune.training.checkpoint import Checkpoint
from attune.training.progress import TrainingProgress

Step = list[LoadedMicroBatch]


def main() -> None:
    """Simulate clusters of rising size, and print how the cost of a step grows."""
    parser = argparse.ArgumentParser(description="Measure what a step costs outside of compute.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--slots", type=int, default=1, help="micro-batches of a rank in a step")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        corpus = open_corpus("train", [_write(Path(scratch), arguments.rows)], Path(scratch) / "index")
        for ranks in arguments.ranks:
            _simulate(corpus, ranks, arguments.steps, arguments.slots, Path(scratch) / f"checkpoints-{ranks}")


def _write(folder: Path, rows: int) -> Path:
    manifest, draw = folder / "rows.jsonl", random.Random(1)
    with manifest.open("w") as file:
        for row in range(rows):
            fields = {"id": f"u{row:08d}", "audio": f"s3://speech/{row:08d}.flac", "text": "some words to learn"}
            file.write(json.dumps(fields | {"seconds": round(1 + 14 * draw.random(), 3)}) + "\n")
    return manifest


def _simulate(corpus: Corpus, ranks: int, steps: int, slots: int, checkpoints: Path) -> None:
    clock = time.process_time()
    plan = plan_epoch(corpus.seconds, np.arange(len(corpus)), Budget(240.0, None, ranks * slots), 1, 0)
    planned = time.process_time() - clock
    cluster = [_steps(corpus, plan, rank, ranks) for rank in range(ranks)]
    loading, positions, seen = _take(cluster, steps)
    if len(seen) != len(set(seen)):
        raise RuntimeError("an utterance went to two ranks")
    saving = [_save(checkpoints, position) for position in positions]
    first, *later = loading
    slowest = statistics.median(max(step) for step in later)
    mean = statistics.mean(second for step in later for second in step)
    print(
        f"{ranks:4d} ranks: plan {planned:.2f} s an epoch; a step's loading: median of the slowest rank "
        f"{slowest * 1e3:.2f} ms, mean rank {mean * 1e3:.2f} ms (first step: {max(first) * 1e3:.1f} ms); "
        f"bookkeeping of a checkpoint {min(saving) * 1e3:.1f} ms; {len(seen):,} utterances, each once",
        flush=True,
    )


def _steps(corpus: Corpus, plan: Plan, rank: int, ranks: int) -> Iterator[Step]:
    """A rank's steps, from attune's loader without the audio."""
    micros = micros_from(Position(), lambda _: plan, rank, ranks, aligned=False)
    loaded = load(Reader(corpus, reads_audio=False), micros, workers=0)
    return (list(group) for _, group in groupby(loaded, key=lambda each: each.micro.position))


def _take(cluster: list[Iterator[Step]], steps: int) -> tuple[list[list[float]], list[Position], list[str]]:
    """Seconds of CPU of each rank in each step, the position after it, and the ids of all utterances."""
    took, positions, seen = [], [], list[str]()
    for _ in range(steps):
        clocks, groups = zip(*map(_timed, cluster), strict=True)
        (position,) = {slot.micro.position for group in groups for slot in group}  # all ranks stand at the same step
        seen += [name for group in groups for slot in group if slot.batch for name in slot.batch.ids]
        took.append(list(clocks))
        positions.append(position)
    return took, positions, seen


def _timed(rank: Iterator[Step]) -> tuple[float, Step]:
    clock = time.process_time()
    group = next(rank)
    return time.process_time() - clock, group


def _save(checkpoints: Path, position: Position) -> float:
    """Write, verify and prune a checkpoint without weights to speak of: what it costs beside its bytes."""
    clock = time.process_time()
    weights = {"weight": torch.zeros(8)}
    checkpoints.parent.mkdir(exist_ok=True)
    checkpoint.save(checkpoints, Checkpoint(weights, weights, TrainingProgress(position)))
    found, _ = checkpoint.newest(checkpoints)
    if found is None or checkpoint.read(found).progress.position != position:
        raise RuntimeError("the newest checkpoint is not the one that was saved")
    checkpoint.prune(checkpoints, 2, set())
    return time.process_time() - clock


if __name__ == "__main__":
    main()
