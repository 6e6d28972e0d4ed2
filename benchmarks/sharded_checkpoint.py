"""What a checkpoint in shards costs: memory of a rank against its share, step time meanwhile, seconds to save and load.

    .venv/bin/python benchmarks/sharded_checkpoint.py [large|medium|small|tiny] [--ranks 2] [--bf16] [--steps N] …

Whisper's shapes with SGD and momentum; in bf16, large (1.5 B) fits into 12 GiB of a CPU's memory. The weights
are random numbers in a safetensors file, which every rank reads slice by slice. `--whole` also saves and loads as one
file, as a model does that is not shared. With `--steps 0` nothing is trained: saving and loading alone.
"""

import argparse
import json
import multiprocessing
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from attune.batches.micro_batch import Position
from attune.families.whisper.layers import EncoderDecoder
from attune.families.whisper.shape import WhisperShape
from attune.stored_tensors import TensorToWrite, open_tensors, write_tensors
from attune.testing.ranks import run_ranks
from attune.training import checkpoint
from attune.training.checkpoint import Checkpoint
from attune.training.deferred import Deferred
from attune.training.gradients import Gradients
from attune.training.optimizer import state_by_name
from attune.training.progress import TrainingProgress
from attune.training.saving import ShardedSaver
from attune.training.sharding import fill_slices, load_stored, share_weights, whole_weights
from attune.world import World

WIDTHS = {"tiny": (384, 4), "small": (768, 12), "medium": (1024, 24), "large": (1280, 32)}  # width, layers of each half
FRAMES, TOKENS = 64, 16


class Whisper(nn.Module):
    """Both halves, with a loss of random features and tokens."""

    def __init__(self, size: str) -> None:
        super().__init__()
        width, layers = WIDTHS[size]
        heads = width // 64
        sizes = (layers, heads, 4 * width)
        shape = WhisperShape(51866, 128, width, *sizes, *sizes, 1500, 448, 0.0, 0.0, 0.0)
        with torch.device("meta"):
            self.model = EncoderDecoder(shape, saves_memory=True, plans=False).to(torch.get_default_dtype())
        self.model.to_empty(device="cpu")

    def loss(self, seed: int) -> Tensor:
        """The summed loss of one utterance."""
        random = torch.Generator().manual_seed(seed)
        mels = torch.randn(1, 128, FRAMES, generator=random)
        tokens = torch.randint(0, 50000, (1, TOKENS), generator=random)
        logits = self.model.decoder(tokens, self.model.encoder(mels, None), None)
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten(), reduction="sum")


class Peak:
    """The most anonymous memory that this process has had since the last look, in bytes."""

    def __init__(self) -> None:
        self.start, self._most = self.now(), 0
        threading.Thread(target=self._watch, daemon=True).start()

    @staticmethod
    def now() -> int:
        """What is in use; pages of files, which the kernel can take back, are not counted."""
        found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) * 1024 if found else 0

    def _watch(self) -> None:
        while True:
            self._most = max(self._most, self.now())
            time.sleep(0.01)

    def take(self) -> int:
        """The most so far, above the interpreter's own."""
        most, self._most = max(self._most, self.now()) - self.start, 0
        return most


class Progress(dict[str, Any]):
    """What was measured, printed as it comes."""

    def __setitem__(self, name: str, value: Any) -> None:
        print(f"{os.getpid()} {name}: {value}", file=sys.stderr, flush=True)
        super().__setitem__(name, value)


def seconds(run: Callable[[], Any]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    run()
    return round(time.perf_counter() - began, 2)


def rank(world: World, folder: Path, size: str, has_whole: bool, steps: int) -> dict[str, Any]:
    """Everything on one rank."""
    peak, found = Peak(), Progress()
    deferred = Deferred()

    def begin() -> Whisper:
        with deferred:
            model = Whisper(size)
            stored = open_tensors(folder / "pretrained.safetensors")
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(stored[name])
        tensors = deferred.tensors(model)
        share_weights(model, world)
        fill_slices(model, tensors, world.device, offloads=False)
        return model

    began = time.perf_counter()
    model = begin()
    found["begin_s"], found["begin_peak"] = round(time.perf_counter() - began, 2), peak.take()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-4, momentum=0.9)
    gradients = Gradients(trained)
    total = sum(each.numel() for each in model.parameters())
    found |= {
        "parameters": total,
        "share": 3 * gradients.flat.itemsize * total // world.size,
    }  # weights, gradients, momentum
    saver = ShardedSaver(folder / "checkpoints", model, optimizer, world, lambda *_: None)
    seeds = iter(range(1000))

    def step() -> None:
        gradients.clear()
        model.loss(next(seeds)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        world.barrier()

    def save(number: int, meanwhile: Callable[[], None]) -> tuple[float, list[float], float]:
        """Seconds until it has begun, of each step beside it, and in all."""
        world.barrier()
        began = time.perf_counter()
        saver.begin(Checkpoint({}, {}, TrainingProgress(Position(number))))
        begun, during = time.perf_counter() - began, [seconds(meanwhile)]
        while not all(world.gather(saver.is_written)):
            during.append(seconds(meanwhile))
        saver.finish()
        return round(begun, 3), during, round(time.perf_counter() - began, 2)

    if steps:
        step()
        found["step_s"], found["step_peak"] = [seconds(step)], peak.take()
    else:
        gradients.clear()  # its pages are there from now on
        for each in trained:
            optimizer.state[each]["momentum_buffer"] = torch.zeros_like(each).fill_(0.0)
        found["plain_peak"] = peak.take()
    found["begin_save_s"], found["saving_step_s"], found["save_s"] = save(1, step if steps else lambda: time.sleep(0.1))
    found["saving_peak"] = peak.take()
    for number in range(2, steps + 1):  # in turn: the machine may become slower
        found["step_s"] = [*found["step_s"], seconds(step)]
        found["saving_step_s"] = [*found["saving_step_s"], *save(number, step)[1]]
    newest = checkpoint.folder_of(folder / "checkpoints", 1)
    world.barrier()
    found["verify_s"] = seconds(lambda: checkpoint.damage(newest))
    optimizer.state.clear()  # who resumes has none yet
    peak.take()
    load = lambda: load_stored(model, optimizer, checkpoint.tensors(newest), checkpoint.tensors(newest, "optimizer"))  # noqa: E731
    found["load_s"], found["load_peak"] = seconds(load), peak.take()
    if has_whole:
        found |= whole(world, folder, model, optimizer, peak)
    saver.close()
    return dict(found)


def whole(world: World, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, peak: Peak) -> dict[str, Any]:
    """The same as one file, which the first rank writes while the others wait."""

    def save() -> None:
        weights = whole_weights(model)
        state = {name: _whole(each) for name, each in state_by_name(optimizer, model).items()}
        if world.is_first:
            checkpoint.save(folder / "whole", Checkpoint(weights, state, TrainingProgress(Position(1))))
        world.barrier()

    found: dict[str, Any] = {"whole_save_s": seconds(save), "whole_save_peak": peak.take()}
    newest = checkpoint.folder_of(folder / "whole", 1)
    load = lambda: load_stored(model, optimizer, checkpoint.tensors(newest), checkpoint.tensors(newest, "optimizer"))  # noqa: E731
    return found | {"whole_load_s": seconds(load), "whole_load_peak": peak.take()}


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def write_pretrained(size: str, path: Path) -> None:
    """Random weights, one tensor at a time."""
    with Deferred():
        shapes = {name: each.shape for name, each in Whisper(size).named_parameters()}
    torch.manual_seed(0)
    later = {
        name: TensorToWrite(torch.get_default_dtype(), tuple(shape), _drawn(shape)) for name, shape in shapes.items()
    }
    write_tensors(path, later)


def _drawn(shape: torch.Size) -> Callable[[Callable[[Tensor], None]], None]:
    return lambda write: write(torch.full(shape, 0.01) if len(shape) < 2 else torch.randn(shape).mul_(0.02))


def main() -> None:
    """Measure, and print one line of JSON for each rank and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", choices=WIDTHS, default="small")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--steps", type=int, default=3, help="of each kind")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.bfloat16 if arguments.bf16 else torch.float32)  # of the gradients' buffer too
    multiprocessing.set_start_method("fork", force=True)
    folder = Path(tempfile.mkdtemp(prefix="sharded-"))
    try:
        (folder / "checkpoints").mkdir()
        (folder / "whole").mkdir()
        write_pretrained(arguments.size, folder / "pretrained.safetensors")
        ranks = run_ranks(arguments.ranks, rank, folder, arguments.size, arguments.whole, arguments.steps)
    finally:
        shutil.rmtree(folder)
    for found in ranks:
        print(json.dumps(found))
    share = ranks[0]["share"]
    peaks = {name: max(each[name] for each in ranks) / share for name in ranks[0] if name.endswith("peak")}
    print({name: f"{value:.2f} × the share" for name, value in peaks.items()})
    if not arguments.steps:
        return
    plain, during = (statistics.median(ranks[0][name]) for name in ("step_s", "saving_step_s"))
    print(f"medians: step {plain:.2f} s, while saving {during:.2f} s, {during / plain:.2f} ×")


if __name__ == "__main__":
    main()
