"""Training on shards that nobody has indexed: read in one pass, a window of utterances at a time.

An epoch is the shards in an order of its own, cut into blocks of `window` samples. What a block holds follows from
where it begins, a `Cursor`; how it is cut into steps follows from what it holds, by the same plan as an epoch of
manifests. So a run goes on from a cursor by reading one block again, on any number of ranks: each reads every block
and computes its own slots. The blocks of a node are read once, into files that workers read from and that go when they
are done with.
"""

import hashlib
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import numpy as np

from attune.batches.micro_batch import DroppedRow, LoadedMicroBatch, MicroBatchPlan, Position
from attune.batches.plan import Budget, Plan, plan_epoch, slots_of
from attune.errors import DataError
from attune.files import completed, one_at_a_time, write_text
from attune.seeds import derive
from attune.sources import shown
from attune.types import SpeakerSegment, Utterance

AHEAD = 2  # blocks read before they are needed; with one, a slow line would be waited for at each block's end
KEPT = 2  # blocks behind the one that is trained on: other ranks of the node may be a step behind


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a block begins: in which epoch, its number there, and where in which of the epoch's shards."""

    epoch: int = 0
    block: int = 0
    shard: int = 0
    byte: int = 0


@dataclass(frozen=True, slots=True)
class StreamSample:
    """What a shard holds under one name: an utterance with its recording, or why there is none."""

    utterance: Utterance | None
    content: bytes
    end: int  # the byte at which the next sample begins
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a stream, and how one is read from any of its samples on."""

    names: tuple[str, ...]
    samples: Callable[[str, int], Iterable[StreamSample]]
    window: int
    seed: int
    folder: Path  # of this run on this machine, where blocks are put

    @property
    def fingerprint(self) -> str:
        """Changes when the epochs would be others; an address that is signed anew is the same."""
        return hashlib.sha256("\n".join([str(self.window), *map(shown, self.names)]).encode()).hexdigest()

    def order(self, epoch: int) -> list[str]:
        """The shards as an epoch reads them."""
        random = np.random.Generator(np.random.Philox(key=derive(self.seed, "shards", epoch)))
        return [self.names[index] for index in random.permutation(len(self.names))]


@dataclass(frozen=True, slots=True)
class ShardBlock:
    """A window of utterances, whose recordings lie in a file, and the cursor of the next one."""

    cursor: Cursor
    after: Cursor
    utterances: tuple[Utterance, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamRules:
    """How a block is cut into steps."""

    budget: Budget
    seed: int
    min_seconds: float
    max_seconds: float
    drops_bad_rows: bool


@dataclass(frozen=True, slots=True)
class Part:
    """Which slots are this rank's."""

    rank: int
    ranks: int
    aligned: bool


def stream_micros(position: Position, shards: Shards, rules: StreamRules, part: Part) -> Iterator[MicroBatchPlan]:
    """Every micro-batch a rank will compute, from a position on, epoch after epoch without end."""
    step, seconds_so_far, done = position.step, position.epoch_seconds, position.step_in_epoch
    start = Cursor(position.epoch, position.block, position.shard, position.byte)
    # A block may have no step; what it leaves out is reported with the next.
    steps_of_epoch, unreported = 0, list[DroppedRow]()
    for block in _blocks_from(start, shards):
        if block.cursor != start:
            done = 0
        if block.cursor.block == 0 and block.cursor != start:
            _require_some(steps_of_epoch, unreported)
            steps_of_epoch, seconds_so_far = 0, 0.0
        plan, dropped = plan_block(block, rules)
        unreported += dropped if not done else ()
        seconds = np.array([utterance.seconds for utterance in block.utterances])
        for number in range(done, plan.steps):
            first, last = (plan.bounds[min(plan.micros, each * plan.micros_per_step)] for each in (number, number + 1))
            step += 1
            seconds_so_far += float(seconds[plan.order[first:last]].sum())
            yield from _slots(
                block, plan, number, _position(step, seconds_so_far, number + 1, block.cursor), part, unreported
            )
            unreported = []
        steps_of_epoch += plan.steps


def _require_some(steps: int, left_out: Sequence[DroppedRow]) -> None:
    if not steps:
        reasons = [f"  {each.reason}" for each in left_out[:10]] or ["  the shards have no utterances"]
        raise DataError(
            "\n".join(["No utterance of the stream can be used for training:", *reasons])
            + "\nFix the shards, or change data.min_seconds and data.max_seconds."
        )


def plan_block(block: ShardBlock, rules: StreamRules) -> tuple[Plan, tuple[DroppedRow, ...]]:
    """The block cut into micro-batches of similar length, and what it leaves out."""
    if block.problems and not rules.drops_bad_rows:
        raise DataError(
            f"{len(block.problems)} samples of the stream cannot be used:\n"
            + "\n".join(f"  {problem}" for problem in block.problems[:10])
            + "\nFix them, or set data.bad_rows=drop to skip them."
        )
    seconds = np.array([utterance.seconds for utterance in block.utterances])
    fits = (seconds >= rules.min_seconds) & (seconds <= rules.max_seconds)
    left_out = [f"{int((~fits).sum())} utterances of block {block.cursor} are too short or too long"]
    reasons = [*block.problems, *(left_out if not fits.all() else [])]
    seed = derive(rules.seed, "block", block.cursor.block)
    plan = plan_epoch(seconds, np.flatnonzero(fits), rules.budget, seed, block.cursor.epoch)
    return plan, tuple(DroppedRow(-1, reason) for reason in reasons)


def forgetting(loaded: Iterator[LoadedMicroBatch], shards: Shards) -> Iterator[LoadedMicroBatch]:
    """Pass batches on; remove the blocks that every rank has done with."""
    now = (-1, -1)
    for each in loaded:
        here = (each.micro.position.epoch, each.micro.position.block)
        if here != now:
            now = here
            _forget_before(shards.folder, _name(Cursor(*here)))
        yield each


def forget_all(shards: Shards) -> None:
    """Remove what a finished run needs no more."""
    shutil.rmtree(shards.folder, ignore_errors=True)


def read_block(shards: Shards, cursor: Cursor, stop: Event | None = None) -> ShardBlock:
    """The block that begins at `cursor`: what another rank of this node has read, or else read now, until `stop`."""
    header = shards.folder / f"{_name(cursor)}.json"
    with one_at_a_time(shards.folder / ".lock"):
        return _load(header, cursor) or _read(shards, cursor, header, stop or Event())


def _blocks_from(cursor: Cursor, shards: Shards) -> Iterator[ShardBlock]:
    """Block after block; the next ones are read while one is trained on."""
    stop = Event()
    pool = ThreadPoolExecutor(1)
    try:
        coming = deque([pool.submit(read_block, shards, cursor, stop)])
        while True:
            while len(coming) <= AHEAD:
                coming.append(pool.submit(_read_next, shards, coming[-1], stop))
            yield coming.popleft().result()
    finally:  # the last step is taken; nobody waits for what was read ahead
        stop.set()
        pool.shutdown(cancel_futures=True)


def _read_next(shards: Shards, before: Future[ShardBlock], stop: Event) -> ShardBlock:
    return read_block(shards, before.result().after, stop)


def _position(step: int, seconds_so_far: float, in_block: int, cursor: Cursor) -> Position:
    return Position(step, cursor.epoch, in_block, cursor.block, cursor.shard, cursor.byte, seconds_so_far)


def _slots(
    block: ShardBlock, plan: Plan, step: int, after: Position, part: Part, dropped: Sequence[DroppedRow]
) -> Iterator[MicroBatchPlan]:
    for slot in slots_of(part.rank, part.ranks, plan.micros_per_step, part.aligned) or [None]:
        rows = plan.order[:0] if slot is None else plan.micro(step, slot)
        utterances = tuple(block.utterances[row] for row in rows)
        yield MicroBatchPlan(after, slot or 0, rows, utterances, tuple(dropped) if slot == 0 else ())


def _name(cursor: Cursor) -> str:
    return f"{cursor.epoch:06d}-{cursor.block:08d}"


def _forget_before(folder: Path, name: str) -> None:
    headers = sorted(path for path in folder.glob("*-*.json") if path.stem < name)
    for header in headers[:-KEPT] if len(headers) > KEPT else []:
        header.unlink(missing_ok=True)
        header.with_suffix(".bin").unlink(missing_ok=True)


@dataclass(slots=True)
class _Filling:
    """A block while it is being read."""

    audio: Path
    file: BinaryIO
    utterances: list[Utterance] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, sample: StreamSample) -> None:
        self.count += 1
        if sample.utterance is None:
            self.problems.append(sample.problem)
            return
        first = self.file.tell()
        self.file.write(sample.content)
        self.utterances.append(
            replace(sample.utterance, audio=self.audio, first_byte=first, byte_count=len(sample.content))
        )


def _read(shards: Shards, cursor: Cursor, header: Path, stop: Event) -> ShardBlock:
    audio = header.with_suffix(".bin")
    with completed(audio) as partial, partial.open("wb") as file:
        filling = _Filling(audio, file)
        after = _fill(filling, shards, cursor, stop)
    block = ShardBlock(cursor, after, tuple(filling.utterances), tuple(filling.problems))
    write_text(header, json.dumps(asdict(block), default=str))
    return block


def _fill(filling: _Filling, shards: Shards, cursor: Cursor, stop: Event) -> Cursor:
    """Read a window of samples, and say where the next one begins."""
    order = shards.order(cursor.epoch)
    for number in range(cursor.shard, len(order)):
        for sample in shards.samples(order[number], cursor.byte if number == cursor.shard else 0):
            if stop.is_set():
                raise CancelledError
            filling.add(sample)
            if filling.count == shards.window:
                return Cursor(cursor.epoch, cursor.block + 1, number, sample.end)
    return Cursor(cursor.epoch + 1)


def _utterance(saved: Mapping[str, Any]) -> Utterance:
    segments = tuple(SpeakerSegment(**each) for each in saved["segments"])
    signals = {role: Path(path) for role, path in saved["signals"].items()}
    own = {"audio": Path(saved["audio"]), "signals": signals, "segments": segments, "phrases": tuple(saved["phrases"])}
    return Utterance(**{**saved, **own})


def _load(header: Path, cursor: Cursor) -> ShardBlock | None:
    if not header.exists() or not header.with_suffix(".bin").exists():
        return None
    saved: dict[str, Any] = json.loads(header.read_text(encoding="utf-8"))
    if Cursor(**saved["cursor"]) != cursor:
        return None
    utterances = tuple(map(_utterance, saved["utterances"]))
    return ShardBlock(cursor, Cursor(**saved["after"]), utterances, tuple(saved["problems"]))
