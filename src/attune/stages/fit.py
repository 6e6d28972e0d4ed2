"""Memory before the run: the plan's worst micro-batch once, forward and backward, and how much more there is room for.

Measured in a process of its own, so that what it takes is what a rank takes, and running out of memory ends nothing
but the measurement.
"""

import multiprocessing
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from attune.batches.plan import Rows
from attune.contracts import StepStatistics
from attune.loading.begin import begin_model
from attune.loading.data import WorstMicroBatch, open_split, planner, training_reader, training_rows, worst_micro_batch
from attune.loading.pretrained import ModelFolders
from attune.recipe import Recipe
from attune.site import Site
from attune.sources import unwatched
from attune.training.gradients import Gradients
from attune.training.memory import is_out_of_memory
from attune.training.micro import Eager
from attune.training.optimizer import make_optimizer
from attune.types import Batch
from attune.world import World, choose_device

ROOM = 0.9  # of the memory, to be used: allocators leave gaps, and other epochs have other batches


@dataclass(frozen=True, slots=True)
class Fit:
    """What one rank needs for the worst micro-batch, and the largest setting that should fit; bytes."""

    utterances: int
    seconds: float  # padded
    longest: tuple[str, ...]  # ids
    before: int  # weights, gradients and optimizer state
    peak: int | None  # None: it did not fit
    limit: int
    setting: str
    now: float
    proposed: float | None  # None: not even the longest utterance should fit

    @property
    def fits(self) -> bool:
        """Whether the recipe as it is can run here."""
        return self.peak is not None and self.peak <= self.limit


@dataclass(frozen=True, slots=True)
class _Used:
    before: int
    peak: int | None
    limit: int


def check_fit(recipe: Recipe, site: Site) -> Fit:
    """Run the worst micro-batch of the first epoch, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = open_split(recipe, "train", Path(folder), site, World.alone())
        worst = worst_micro_batch(corpus, planner(recipe, corpus, training_rows(recipe, corpus))(0))
        quiet = replace(site, cache=replace(site.cache, watch=unwatched))  # a terminal does not go to another process
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            try:
                used = pool.submit(_measure, recipe, quiet, Path(folder), worst.rows).result()
            except BrokenProcessPool:  # the kernel killed it
                used = _Used(0, None, _machine_memory())
    return _propose(recipe, used, worst, float(corpus.seconds[worst.rows].max()))


def _propose(recipe: Recipe, used: _Used, worst: WorstMicroBatch, longest: float) -> Fit:
    """Activations grow with the padded audio, row by row; the rest of the memory does not depend on the batch."""
    batches = recipe.batches
    setting = "batches.micro_seconds" if batches.micro_seconds else "batches.micro_utterances"
    now = float(batches.micro_seconds or batches.micro_utterances or 1)
    proposed = None
    if used.peak is not None:
        rows = (used.limit - used.before) / max(1.0, (used.peak - used.before) / len(worst.rows))
        if rows >= 1:
            proposed = float(int(rows * longest)) if batches.micro_seconds else float(int(rows))
    return Fit(
        utterances=len(worst.rows),
        seconds=worst.padded_seconds,
        longest=worst.longest,
        before=used.before,
        peak=used.peak,
        limit=used.limit,
        setting=setting,
        now=now,
        proposed=proposed,
    )


def _measure(recipe: Recipe, site: Site, folder: Path, rows: Rows) -> _Used:
    device = choose_device(site.device)
    corpus = open_split(recipe, "train", folder, site, World.alone())
    begun = begin_model(recipe, corpus, ModelFolders(folder / "task", folder / "assets"), site, World.alone())
    loaded, model = begun.loaded, begun.loaded.task_model.module.to(device)
    settings = recipe.optimizer
    optimizer = make_optimizer(settings.name, model, 0.0, 0.0, settings.betas)
    tallied = [module for module in model.modules() if isinstance(module, StepStatistics)]
    gradients = Gradients((parameter for parameter in model.parameters() if parameter.requires_grad), tallied)
    optimizer.step()  # with a rate of zero: only to have its state in memory
    batch, _ = training_reader(recipe, corpus, loaded, site).read(rows)
    memory = _Cuda(device) if device.type == "cuda" else _Cpu()
    before = memory.used()
    eager = Eager(loaded.task_model.model.train(), recipe.train.precision, device)
    peak = _run(eager, batch, memory) if batch else before
    gradients.clear()
    return _Used(before, peak, int(memory.limit * ROOM))


def _run(backward: Eager, batch: Batch, memory: "_Cpu | _Cuda") -> int | None:
    memory.reset()
    try:
        backward(batch, 1.0)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return memory.peak()


class _Cpu:
    """This process's memory, as the kernel counts it."""

    def __init__(self) -> None:
        self.limit = _machine_memory() + self.used()

    def used(self) -> int:
        return _kibibytes("VmRSS") * 1024

    def reset(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far becomes what it is now

    def peak(self) -> int:
        return _kibibytes("VmHWM") * 1024


class _Cuda:
    """A device's memory, as torch counts it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        free, _ = torch.cuda.mem_get_info(device)
        self.limit = free + torch.cuda.memory_reserved(device)

    def used(self) -> int:
        return torch.cuda.memory_allocated(self.device)

    def reset(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self.device)


def _kibibytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _machine_memory() -> int:
    """What is free on this machine, or in this container where that is less."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    free = int(found[1]) * 1024 if found else 0
    allowed, taken = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if allowed.exists() and allowed.read_text().strip().isdigit():
        free = min(free, int(allowed.read_text()) - int(taken.read_text()))
    return free
