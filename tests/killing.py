"""A run that is killed again and again on changing numbers of ranks, with a record of everything it trained on."""

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attune.files import sha256
from attune.run import Run

from processes import kill, start, wait

RANKS = (2, 4, 1, 3, 2)


@dataclass
class Killed:
    """What became of a run that was killed: how often, how its best went, and what each step was trained on."""

    kills: int = 0
    best: list[float] = field(default_factory=list)
    trained: dict[tuple[int, int], set[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(set))
    epochs: dict[int, int] = field(default_factory=dict)  # by step


def recorder(folder: Path):
    """Called in each rank before it starts: writes down what every micro-batch of every step holds."""

    def record(rank: int) -> None:
        import attune.stages.train as stage

        real = stage.take_steps
        path = folder / f"{time.time_ns()}-{rank}"

        def recorded(micros):
            with path.open("a") as file:
                for loaded in micros:
                    if loaded.batch is not None:
                        place = loaded.micro.position
                        line = [place.step, place.epoch, loaded.micro.slot, list(loaded.batch.ids)]
                        file.write(json.dumps(line) + "\n")
                        file.flush()
                    yield loaded

        stage.take_steps = lambda model, optimizer, micros, *rest: real(model, optimizer, recorded(micros), *rest)

    return record


def kill_again_and_again(words: Sequence[str], run: Path, records: Path, kills: int, seed: int = 0) -> Killed:
    """Start the run on 2, 4, 1, 3, 2 … ranks, kill one or all of them at random; in the end let it finish."""
    chance, killed = random.Random(seed), Killed()
    records.mkdir()
    while killed.kills < kills:
        ranks = RANKS[killed.kills % len(RANKS)]
        lives = len(list(records.iterdir()))
        processes = start(list(words), ranks, recorder(records))
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0.1, 1.0))  # while it starts
        else:
            _wait_for_a_step(records, lives)
            time.sleep(chance.uniform(0.0, 0.4))
        kill(processes if chance.random() < 0.5 else [chance.choice(processes)])
        if wait(processes) == [0] * ranks:
            break
        killed.kills += 1
        best = Run(run).best()
        if best:
            killed.best.append(best.value)
    assert wait(start(list(words), RANKS[killed.kills % len(RANKS)], recorder(records)), 900)[0] == 0
    for path in records.iterdir():
        for line in path.read_text().splitlines():
            if line.endswith("]"):
                step, epoch, slot, ids = json.loads(line)
                killed.trained[step, slot].add(tuple(ids))
                killed.epochs[step] = epoch
    return killed


def _wait_for_a_step(records: Path, lives: int) -> None:
    """Until a life that began after so many has read something to train on."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(path.stat().st_size for path in sorted(records.iterdir())[lives:]):
            return
        time.sleep(0.005)


def complaints(killed: Killed, names: Sequence[str]) -> list[str]:
    """A step that was not the same each time, an utterance that was not once in an epoch, a best that got worse."""
    found = [f"{place} was trained on other utterances" for place, seen in killed.trained.items() if len(seen) > 1]
    epochs: dict[int, Counter[str]] = defaultdict(Counter)
    for (step, _), seen in killed.trained.items():
        epochs[killed.epochs[step]].update(next(iter(seen)))
    whole = sorted(epochs)[:-1]  # the last may have ended early
    found += [f"epoch {epoch}" for epoch in whole if epochs[epoch] != Counter(dict.fromkeys(names, 1))]
    worse = any(later > earlier for earlier, later in zip(killed.best, killed.best[1:], strict=False))
    return [*found, *(["the best got worse"] if worse else [])]


def bits(run: Path, steps: int) -> list[str]:
    last = run / f"checkpoints/step-{steps:06d}"
    return [sha256(last / name) for name in ("model.safetensors", "optimizer.safetensors", "progress.json")]
