"""What fits where: memory of a training step, estimated without a device, and checked against one that runs here.

    .venv/bin/python benchmarks/what_fits.py                  # the table of docs/guides/clusters.md
    .venv/bin/python benchmarks/what_fits.py --check base     # its shapes on the CPU, one rank and two that share

The estimate is that of `attune check --fit --memory GIB --devices N`. The check measures anonymous memory of steps.
"""

import argparse
import ctypes
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from attune.families.lm.build import LanguageModelNet
from attune.families.lm.transformer import TransformerLm, TransformerLmShape
from attune.families.transducer import presets
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.settings import TransducerConfig
from attune.families.transducer.shape import read_shape
from attune.families.whisper.model import WhisperModel
from attune.families.whisper.shape import WhisperShape
from attune.stages.fit import ROOM
from attune.stages.fit_elsewhere import WalkedStep, walk_step
from attune.testing.ranks import run_ranks
from attune.training.adapt import adapt
from attune.training.deferred import Deferred
from attune.training.gradients import Gradients
from attune.training.memory import return_freed_memory
from attune.training.micro import Eager
from attune.training.optimizer import make_optimizer
from attune.training.settings import AdaptConfig, OptimizerConfig
from attune.training.sharding import share_weights
from attune.types import Batch, TokenTargets
from attune.world import World

GIB = 2**30
START = 50258  # of a transcript, in Whisper's vocabulary
MACHINES = {"1 × 24 GB": (1, 24), "1 × 80 GB": (1, 80), "8 × 80 GB": (8, 80)}
WAYS = [("none", False), ("optimizer", False), ("gradients", False), ("full", False), ("full", True)]


def whisper(width: int, layers: int, saves_memory: bool) -> nn.Module:
    """Whisper of any size, with full windows."""
    sizes = (layers, width // 64, 4 * width)
    shape = WhisperShape(51866, 128, width, *sizes, *sizes, 1500, 448, 0.0, 0.0, 0.0)
    return WhisperModel(shape, "full", SimpleNamespace(start=START), saves_memory)  # type: ignore[arg-type]


def fastconformer(saves_memory: bool) -> nn.Module:
    """NeMo's FastConformer XXL transducer: 42 layers of 1024."""
    presets.SIZES["fastconformer"]["large"] = replace(presets.SIZES["fastconformer"]["large"], width=1024, layers=42)
    config = TransducerConfig(encoder="fastconformer", size="large", tokens="task")
    described = presets.preset(config)
    return TransducerModel(read_shape(described), ["x"] * 1024, described, saves_memory=saves_memory)


def decoder() -> nn.Module:
    """A language model of 32 layers of 4096, 7 B."""
    shape = TransformerLmShape(tokens=32_000, width=4096, heads=32, layers=32, feed_forward=17_000)
    return LanguageModelNet(TransformerLm(shape))


def batch(rows: int, seconds: float, tokens: int) -> Batch:
    """Utterances of one length."""
    samples = round(seconds * 16_000)
    ids = torch.randint(0, 1000, (rows, tokens))
    ids[:, 0] = START if seconds else 0
    targets = TokenTargets(ids, torch.full((rows,), tokens))
    names = tuple(map(str, range(rows)))
    return Batch(names, torch.zeros(rows, samples), torch.full((rows,), samples), targets)


def rows_of(model: str) -> list[tuple[str, Callable[[], nn.Module], Batch, str, AdaptConfig]]:
    """The settings to try: what they are called, the model, the micro-batch and the optimizer."""
    full, lora = AdaptConfig(), AdaptConfig(method="lora", rank=32)
    if model == "Whisper large (1.54 B), 8 × 30 s":
        given = batch(8, 30.0, 64)
        large = lambda saves: lambda: whisper(1280, 32, saves)  # noqa: E731
        return [
            ("AdamW", large(False), given, "adamw", full),  # type: ignore[no-untyped-call]
            ("AdamW, checkpointing", large(True), given, "adamw", full),  # type: ignore[no-untyped-call]
            ("8-bit AdamW, checkpointing", large(True), given, "adamw8bit", full),  # type: ignore[no-untyped-call]
            ("LoRA, checkpointing", large(True), given, "adamw", lora),  # type: ignore[no-untyped-call]
        ]
    if model == "FastConformer (1.1 B), 16 × 15 s":
        given = batch(16, 15.0, 64)
        given = replace(given, targets=TokenTargets(given.tokens.ids % 1000, given.tokens.lengths))
        return [
            ("AdamW", lambda: fastconformer(False), given, "adamw", full),
            ("AdamW, checkpointing", lambda: fastconformer(True), given, "adamw", full),
            ("8-bit AdamW, checkpointing", lambda: fastconformer(True), given, "adamw8bit", full),
        ]
    given = batch(4, 0.0, 512)
    return [
        ("AdamW", decoder, given, "adamw", full),
        ("8-bit AdamW", decoder, given, "adamw8bit", full),
        ("LoRA", decoder, given, "adamw", lora),
    ]


MODELS = ("Whisper large (1.54 B), 8 × 30 s", "FastConformer (1.1 B), 16 × 15 s", "a decoder (7 B), 4 × 512 tokens")


def walked(
    build: Callable[[], nn.Module], given: Batch, optimizer: str, how: AdaptConfig, precision: str
) -> WalkedStep:
    """A step without memory."""
    with Deferred(draws=False):
        model = build()
        adapt(model, how, 0, (), (("q_proj", "v_proj"),))
    return walk_step(model, given, OptimizerConfig(name=optimizer, lr=1e-5), precision)  # type: ignore[arg-type]


def cell(step: WalkedStep, optimizer: str, devices: int, memory: int) -> str:
    """The first way of sharing that fits, from the one that costs least; and what it takes."""
    ways = [way for way in WAYS if devices > 1 or way[0] == "none" or way[1]]
    ways = [way for way in ways if not (way[1] and optimizer == "adamw8bit")]  # refused
    for shard, offload in ways:
        need = step.on_device(shard, offload, devices)
        if need <= ROOM * memory * GIB:
            host = f" + {step.on_host(True, devices) / GIB:.0f} host" if offload else ""
            return f"`{shard}`{', offload' if offload else ''}: {need / GIB:.1f}{host}"
    return "no"


def table() -> None:
    """Print the table, line by line."""
    print(f"| model, micro-batch | settings | {' | '.join(MACHINES)} |\n|---|---|{'---|' * len(MACHINES)}")
    for model in MODELS:
        for name, build, given, optimizer, how in rows_of(model):
            step = walked(build, given, optimizer, how, "bf16")
            cells = [cell(step, optimizer, *machine) for machine in MACHINES.values()]
            print(f"| {model} | {name} | {' | '.join(cells)} |", flush=True)


class Peak:
    """The most anonymous memory of this process."""

    def __init__(self) -> None:
        self.start, self.most = anonymous(), 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, anonymous())
            time.sleep(0.002)


def anonymous() -> int:
    """What is in use; pages of files are not counted."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


SIZES = {"base": (512, 6), "small": (768, 12)}  # Whisper's


def real(world: World, shard: str, size: str) -> dict[str, float]:
    """Two steps on the CPU, and what they took."""
    given = batch(1, 30.0, 32)
    return_freed_memory()
    Eager(whisper(64, 1, False).train(), "fp32", world.device)(given, 1.0)  # type: ignore[arg-type]  # libraries load
    ctypes.CDLL(None).malloc_trim(0)
    peak = Peak()
    model = whisper(*SIZES[size], True)
    if shard != "none":
        share_weights(model, world, regathers=shard == "full")
    optimizer = make_optimizer("adamw", model, 1e-5, 0.0, (0.9, 0.98))
    gradients = Gradients(each for each in model.parameters() if each.requires_grad)
    for _ in range(2):
        gradients.clear()
        Eager(model.train(), "fp32", world.device)(given, 1.0)  # type: ignore[arg-type]
        optimizer.step()
    return {"measured_gib": round((peak.most - peak.start) / GIB, 3)}


def check(size: str) -> None:
    """Print what was predicted and what was measured."""
    step = walked(lambda: whisper(*SIZES[size], True), batch(1, 30.0, 32), "adamw", AdaptConfig(), "fp32")
    for ranks, shard in ((1, "none"), (2, "gradients"), (2, "full")):
        found: list[dict[str, Any]] = run_ranks(ranks, real, shard, size)
        predicted = round(step.on_device(shard, False, ranks) / GIB, 3)
        print(
            json.dumps({"ranks": ranks, "shard": shard, "predicted_gib": predicted, "ranks_found": found}), flush=True
        )


def main() -> None:
    """Print the table, or the check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", choices=SIZES, help="measure a Whisper of this size")
    size = parser.parse_args().check
    check(size) if size else table()


if __name__ == "__main__":
    main()
