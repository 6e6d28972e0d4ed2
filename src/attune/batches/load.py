"""Rows to batches: decode, make targets, pad. Workers are stateless; they receive row numbers and nothing else.

Where a run stands in its data is a `Position`, three numbers. Going on from one costs nothing: the plan is computed,
and the first audio that is decoded is the first that is trained on.
"""

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info

from attune.audio.augment import Augmenter, generator_for
from attune.audio.decode import Samples, read_utterance
from attune.audio.masking import draw_masks
from attune.batches.cached_features import with_features
from attune.batches.collate import collate
from attune.batches.micro_batch import DroppedRow, LoadedMicroBatch, MicroBatchPlan, Position
from attune.batches.parcel import Parcel, packed
from attune.batches.plan import Plan, Rows, slots_of
from attune.errors import AttuneError, ConfigError, DataError, ReaderLost, TooLong
from attune.processes import die_with_parent, fork_context
from attune.seeds import derive
from attune.sources import contents_of
from attune.text.timestamps import scale_timestamps
from attune.types import Batch, CachedRow, LoadedRow, Target, Utterance
from attune.world import READER


class Utterances(Protocol):
    """What a reader reads from: utterances by row number."""

    def __getitem__(self, row: int, /) -> Utterance: ...


@dataclass(frozen=True, slots=True)
class Reader:
    """How rows become a batch. `target` is absent when only the audio is wanted; `fits` refuses hopeless targets."""

    utterances: Utterances
    target: Callable[[Utterance], Target] | None = None
    fits: Callable[[int, Target], bool] | None = None
    reads_audio: bool = True  # False: the task is about text alone
    drops_bad_rows: bool = False
    drops_long_rows: bool = False
    pack: Callable[[Sequence[LoadedRow]], list[LoadedRow]] | None = None
    augmenter: Augmenter | None = None
    seed: int = 0  # of the augmentation
    rows: int | None = None  # in a mix: row + rows is the same row in its second turn of an epoch
    cached: Callable[[Utterance], CachedRow | None] | None = None  # a frozen upstream's features of an utterance
    held: Container[str] = ()  # names of features that the model has in memory
    cached_needs_audio: bool = False  # the head reads the audio as well

    def read(
        self, rows: Rows, epoch: int = 0, given: Sequence[Utterance] | None = None
    ) -> tuple[Batch | None, tuple[DroppedRow, ...]]:
        """The rows, or the utterances that are given for them, as one batch; and those that were dropped."""
        kept, dropped = [], []
        numbers = [divmod(int(row), self.rows) if self.rows else (0, int(row)) for row in rows]
        utterances = [self.utterances[row] for _, row in numbers] if given is None else given
        kept_features = self._cached(utterances)
        has_features = all(each is not None and each.layers is not None for each in kept_features)
        reads_audio = self.reads_audio and (self.cached_needs_audio or not has_features)
        contents = contents_of(utterances) if reads_audio else [_no_content] * len(utterances)
        for (turn, row), utterance, content, found in zip(numbers, utterances, contents, kept_features, strict=True):
            try:
                if found and has_features and not reads_audio:
                    kept.append(self._with_features(utterance, found, turn))
                    continue
                audio, target = self._read_one(utterance, content, epoch, turn)
                cached = _of_audio(found, len(audio), has_features)
                kept.append(LoadedRow(utterance.id, audio, target, turn, cached, utterance.phrases))
            except DataError as error:
                if not (self.drops_long_rows if isinstance(error, TooLong) else self.drops_bad_rows):
                    raise
                dropped.append(DroppedRow(row, str(error)))
        packed = self.pack(kept) if self.pack else kept
        return (self._masked(packed, epoch) if packed else None), tuple(dropped)

    def _cached(self, utterances: Sequence[Utterance]) -> list[CachedRow | None]:
        """What is kept of each utterance, and under which name it would be."""
        return [self.cached(each) if self.cached else None for each in utterances]

    def _with_features(self, utterance: Utterance, found: CachedRow, turn: int) -> LoadedRow:
        """An utterance whose features are there: its audio is not read."""
        target = self.target(utterance) if self.target else ()
        self._require_fit(utterance, found.samples, target)
        return LoadedRow(utterance.id, np.zeros(0, np.float32), target, turn, found, utterance.phrases)

    def _read_one(
        self, utterance: Utterance, content: Callable[[], bytes | None], epoch: int, turn: int
    ) -> tuple[Samples, Target]:
        if self.reads_audio and utterance.audio is None:
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has no audio. Give its row an `audio` path, or set "
                "data.bad_rows=drop."
            )
        try:
            audio = read_utterance(utterance, content=content()) if self.reads_audio else np.zeros(0, np.float32)
        except DataError as error:
            raise DataError(f"{utterance.where}: utterance {utterance.id!r}: {error}") from error
        target = self.target(utterance) if self.target else ()
        if self.augmenter:
            generator = generator_for(self.seed, epoch, _in_turn(utterance.id, turn))
            before = len(audio)
            audio = self._varied(self.augmenter, audio, generator, target)
            if self.target and len(audio) != before:
                _require_no_signals(utterance)
                target = self.target(_at_pace(utterance, len(audio) / before))  # its times have moved
        self._require_fit(utterance, len(audio), target)
        return audio, target

    def _require_fit(self, utterance: Utterance, samples: int, target: Target) -> None:
        if self.fits and not self.fits(samples, target):
            size = f"{len(target)} tokens" if isinstance(target, tuple) else "a target"
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has {size}, "
                f"too many for {utterance.seconds:.2f} s of audio. Correct its text, or set data.bad_rows=drop."
            )

    def _varied(self, augmenter: Augmenter, audio: Samples, generator: np.random.Generator, target: Target) -> Samples:
        try:
            return augmenter(audio, generator, lambda samples: self.fits is None or self.fits(samples, target))
        except DataError as error:  # of a noise or a room: no fault of the row
            raise ConfigError(f"augment: {error}") from error

    def _masked(self, rows: Sequence[LoadedRow], epoch: int) -> Batch:
        """The rows as a batch, with each row's own masks when the recipe has masks."""
        batch = collate(rows)
        settings = self.augmenter.settings.masks if self.augmenter else None
        if settings is None:
            return batch
        seeds = (derive(self.seed, "masks", epoch, _in_turn(row.id, row.turn)) for row in rows)
        return replace(batch, masks=draw_masks(seeds, settings))


def _of_audio(found: CachedRow | None, samples: int, has_features: bool) -> CachedRow | None:
    """What is kept of an utterance whose audio was read too; of a batch all rows have features, or none."""
    if found is None:
        return None
    return found if has_features else CachedRow(found.key, samples)


def _at_pace(utterance: Utterance, factor: float) -> Utterance:
    """What the utterance is when its audio takes so many times as long."""
    text = utterance.text and scale_timestamps(utterance.text, factor)
    segments = tuple(replace(each, start=each.start * factor, end=each.end * factor) for each in utterance.segments)
    return replace(utterance, seconds=utterance.seconds * factor, text=text, segments=segments)


def _require_no_signals(utterance: Utterance) -> None:
    if utterance.signals:
        raise ConfigError(
            f"augment.speeds cannot change utterance {utterance.id!r}: its other signals "
            f"({', '.join(utterance.signals)}) would lose sync. Remove augment.speeds."
        )


def _no_content() -> None:
    """No recording."""


def _in_turn(utterance_id: str, turn: int) -> str:
    """What the randomness of an utterance derives from: in its second turn of an epoch it sounds another way."""
    return utterance_id if turn == 0 else f"{utterance_id}\x1f{turn}"


def micros_from(
    position: Position, plan: Callable[[int], Plan], rank: int, ranks: int, aligned: bool
) -> Iterator[MicroBatchPlan]:
    """Every micro-batch a rank will compute, from a position on, epoch after epoch without end."""
    step, epoch, done = position.step, position.epoch, position.step_in_epoch
    while True:
        epoch_plan = plan(epoch)
        if not epoch_plan.steps:
            raise DataError("An epoch has no steps. Check data.train, data.min_seconds and data.max_seconds.")
        for step_in_epoch in range(done, epoch_plan.steps):
            step += 1
            after = Position(step, epoch, step_in_epoch + 1)
            # A rank without a slot still takes part in the step.
            for slot in slots_of(rank, ranks, epoch_plan.micros_per_step, aligned) or [None]:
                rows = epoch_plan.order[:0] if slot is None else epoch_plan.micro(step_in_epoch, slot)
                yield MicroBatchPlan(after, slot or 0, rows)
        epoch, done = epoch + 1, 0


def load(
    reader: Reader, micros: Iterable[MicroBatchPlan], workers: int, pins: bool = False
) -> Iterator[LoadedMicroBatch]:
    """Read micro-batches in their order, `workers` processes ahead of the model; 0 reads in this process.

    `pins` puts them where a CUDA device can fetch them by itself.
    """
    loader: DataLoader[LoadedMicroBatch | Parcel] = DataLoader(
        _Readable(reader),
        sampler=micros,
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        pin_memory=pins,
        prefetch_factor=4 if workers else None,
        multiprocessing_context=fork_context() if workers else None,
        worker_init_fn=partial(_settle_worker, os.getpid()) if workers else None,
    )
    opened = (each.open() if isinstance(each, Parcel) else each for each in loader)
    for loaded in with_features(opened, reader.held, pins):
        if loaded.error:
            raise loaded.error
        yield loaded


@contextmanager
def readers_watched() -> Iterator[None]:
    """Put in words that a reader was killed; torch raises that wherever the main thread happens to be."""
    try:
        yield
    except RuntimeError as error:
        if READER not in str(error):
            raise
        raise ReaderLost(
            "A loader worker was killed, perhaps out of memory. Run the same command to resume; if it happens "
            "again, lower --workers."
        ) from error


class CachedBatches:
    """The batches of a set that is decoded again and again; a small one is read once and remembered."""

    def __init__(self, read: Callable[[], Iterator[LoadedMicroBatch]], remembers: bool) -> None:
        self._read = read
        self._remembers = remembers
        self._remembered: list[LoadedMicroBatch] | None = None

    def __iter__(self) -> Iterator[LoadedMicroBatch]:
        if self._remembered is not None:
            yield from self._remembered
            return
        read = []
        for loaded in self._read():
            if self._remembers:
                read.append(loaded)
            yield loaded
        self._remembered = read if self._remembers else None


class _Readable(Dataset[LoadedMicroBatch | Parcel]):
    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __getitem__(self, micro: MicroBatchPlan) -> LoadedMicroBatch | Parcel:
        try:
            batch, dropped = self.reader.read(micro.rows, micro.position.epoch, micro.utterances)
            loaded = LoadedMicroBatch(micro, batch, (*micro.dropped, *dropped))
        except AttuneError as error:
            loaded = LoadedMicroBatch(micro, None, error=error)
        return packed(loaded) if get_worker_info() else loaded


def _as_it_is(loaded: Any) -> Any:
    return loaded


def _settle_worker(parent: int, _: int) -> None:
    die_with_parent(parent)
    # A preemption or Ctrl-C reaches a whole process group; here the parent decides when its workers end.
    os.setpgid(0, 0)
