"""Joint network and transducer loss, forward and backward, beside torchaudio's rnnt_loss, in one run.

    python benchmarks/transducer_loss.py OUT [--sweep] [--shapes 16x500x100,…] [--variants lean;torchaudio]

OUT is where results.json goes. Triton computes on CUDA devices, plain torch elsewhere (`--tiny`); torchaudio is the
peer where it is installed, and gets float32 logits of a bf16 joint and its log-softmax fused. Without --sweep:
correctness, then times and memory of every shape (utterances x frames x labels; 1024 outputs, joint width 640), and
each kernel's share for the largest of 16. With --sweep: each kernel under other tilings.
"""

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.kernels import _fused
from attune.kernels._lattice import Extent
from attune.kernels._tiles import JointWeights
from attune.kernels.transducer import Lattice, transducer_loss

from on_device import forget, name, usual, wait

OUTPUTS, WIDTH = 1024, 640
SHAPES = "8x250x60,16x250x60,32x250x60,8x500x100,16x500x100,32x500x100"
TINY_OUTPUTS, TINY_WIDTH, TINY_SHAPES = 24, 16, "2x12x4"
GIB = 2.0**30
DEVICE = usual()
PARTS = ("encoded", "predicted", "weight", "bias")


@dataclass(frozen=True)
class Data:
    """A joint network's inputs and weights, and what its lattices must spell."""

    parts: tuple[Tensor, ...]
    targets: Tensor
    lengths: Tensor
    target_lengths: Tensor


def draw(batch: int, frames: int, labels: int, outputs: int, width: int, seed: int, ragged: bool = False) -> Data:
    """Fresh random inputs in bf16."""
    random = torch.Generator(DEVICE).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=DEVICE)

    weight = normal(outputs, width) / width**0.5
    parts = (normal(batch, frames, width), normal(batch, labels + 1, width), weight, 0.1 * normal(outputs))
    lengths, target_lengths = torch.full((batch,), frames), torch.full((batch,), labels)
    if ragged:
        lengths = torch.randint(frames // 2, frames + 1, (batch,))
        target_lengths = torch.randint(labels // 2, labels + 1, (batch,))
        lengths[0], target_lengths[0] = frames, labels
    targets = torch.randint(outputs - 8, (batch, labels), generator=random, device=DEVICE)
    return Data(tuple(part.bfloat16().requires_grad_() for part in parts), targets, lengths, target_lengths)


def peer_losses(data: Data, wide: bool = False) -> Tensor:
    """torchaudio on the whole lattice's float32 logits; `wide` makes them in float32 too."""
    from torchaudio.functional import rnnt_loss

    encoded, predicted, weight, bias = (part.float() for part in data.parts) if wide else data.parts
    logits = F.linear(torch.relu(encoded[:, :, None] + predicted[:, None]), weight, bias).float()
    lengths = [value.to(DEVICE, torch.int32) for value in (data.lengths, data.target_lengths)]
    blank = weight.shape[0] - 1
    ids, more = data.targets.int(), {"reduction": "none", "fused_log_softmax": True}
    losses: Tensor = rnnt_loss(logits, ids, *lengths, blank, **more)
    return losses


def lean_losses(data: Data, durations: int = 0) -> Tensor:
    """attune; the last outputs are durations if there are any."""
    lattice = Lattice(data.parts[2].shape[0] - 1 - durations, tuple(range(durations)))
    encoded, predicted, weight, bias = data.parts
    return transducer_loss(encoded, predicted, weight, bias, data.targets, data.lengths, data.target_lengths, lattice)


@contextmanager
def every_cell() -> Iterator[None]:
    """Gradients of all cells, also of those that no path passes."""
    kernels: Any = _fused
    before, kernels.NEGLIGIBLE = kernels.NEGLIGIBLE, -1.0
    try:
        yield
    finally:
        kernels.NEGLIGIBLE = before


def every_cell_losses(data: Data) -> Tensor:
    """attune without leaving any cell out; the choice is made in the forward pass."""
    with every_cell():
        return lean_losses(data)


VARIANTS: dict[str, Callable[[Data], Tensor]] = {
    "torchaudio": peer_losses,
    "lean": lean_losses,
    "lean, every cell": every_cell_losses,
    "lean, durations": lambda data: lean_losses(data, durations=5),
}


def with_gradients(losses: Tensor, data: Data) -> tuple[Tensor, ...]:
    """The losses and their gradients."""
    return losses.detach(), *torch.autograd.grad(losses.sum(), data.parts)


def distance(found: Tensor, expected: Tensor) -> float:
    """Relative; not a number if anything is not."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def check(names: list[str], sizes: tuple[int, int]) -> dict[str, Any]:
    """Losses and gradients of random ragged data against float64 on the same bf16 inputs."""
    results = {}
    for outputs, width, seed in ((*sizes, 1), (sizes[0] + 1, sizes[1], 2), (97, 72, 3)):
        data = draw(3, 70, 24, outputs, width, seed, ragged=True)
        exact = replace(data, parts=tuple(part.detach().double().requires_grad_() for part in data.parts))
        for variant in names:
            durations = 5 if "durations" in variant else 0
            wanted = with_gradients(lean_losses(exact, durations), exact)  # float64: plain torch
            found = with_gradients(VARIANTS[variant](data), data)
            far = distances(found, wanted)
            again = with_gradients(VARIANTS[variant](data), data)
            same = all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
            results[f"{variant}, {outputs} outputs, width {width}"] = {**far, "same bits": same}
            shown = "  ".join(f"{part} {value:.1e}" for part, value in far.items())
            print(f"{variant:>18} {outputs:5d} x {width:3d}  {shown}  same bits twice: {same}", flush=True)
    if "torchaudio" in names:
        results["float32 against torchaudio"] = check_single(sizes)
    return results


def distances(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> dict[str, float]:
    """Of the losses and of each gradient."""
    return {part: distance(one, other) for part, one, other in zip(("loss", *PARTS), found, expected, strict=True)}


def check_single(sizes: tuple[int, int]) -> dict[str, float]:
    """Float32 inputs against torchaudio on float32 logits."""
    data = draw(3, 70, 24, sizes[0] + 1, sizes[1], 4, ragged=True)
    single = replace(data, parts=tuple(part.detach().float().requires_grad_() for part in data.parts))
    found = with_gradients(lean_losses(single), single)
    wanted = with_gradients(peer_losses(single), single)
    exact = replace(data, parts=tuple(part.detach().double().requires_grad_() for part in data.parts))
    truth = with_gradients(lean_losses(exact), exact)
    far = distances(found, wanted) | {f"{part} of float64": far for part, far in distances(found, truth).items()}
    print("float32 against torchaudio, and float64: " + "  ".join(f"{part} {value:.1e}" for part, value in far.items()))
    return far


class Clock:
    """Milliseconds between two moments, on the device where it keeps them."""

    def __init__(self) -> None:
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if is_gpu() else []  # type: ignore[no-untyped-call]
        self.start = time.perf_counter()
        if self.events:
            self.events[0].record()

    def read(self) -> float:
        """Since it was made."""
        if self.events:
            self.events[1].record()
            wait(DEVICE)
            return float(self.events[0].elapsed_time(self.events[1]))
        return 1000 * (time.perf_counter() - self.start)


def is_gpu() -> bool:
    """Whether kernels, events and memory are those of CUDA."""
    return DEVICE.type == "cuda"


def measure(losses: Callable[[Data], Tensor], sets: list[Data], repeats: int) -> dict[str, float]:
    """Median milliseconds by events over rotating inputs, and the peak of memory beyond them."""
    for data in sets + sets:
        with_gradients(losses(data), data)
    wait(DEVICE)
    if is_gpu():
        torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated() if is_gpu() else 0
    times = []
    for index in range(repeats):
        data, clock = sets[index % len(sets)], Clock()
        with_gradients(losses(data), data)
        times.append(clock.read())
    peak = (torch.cuda.max_memory_allocated() - held) / GIB if is_gpu() else 0.0
    return {"ms": statistics.median(times), "ms_least": min(times), "ms_most": max(times), "gib": peak}


def kernel_times(work: Callable[[], object], repeats: int = 3) -> dict[str, float]:
    """Milliseconds of each kernel in one run of the work."""
    work()
    wait(DEVICE)
    kind = torch.profiler.ProfilerActivity.CUDA if is_gpu() else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[kind]) as profile:
        for _ in range(repeats):
            work()
        wait(DEVICE)
    times: dict[str, float] = defaultdict(float)
    for event in profile.key_averages():
        spent = event.self_device_time_total if is_gpu() else event.self_cpu_time_total
        times[event.key[:60]] += spent / 1000 / repeats
    return dict(sorted(times.items(), key=lambda item: -item[1]))


Shape = tuple[int, int, int]


def compare(shapes: list[Shape], names: list[str], sizes: tuple[int, int]) -> list[dict[str, Any]]:
    """Every variant on every shape."""
    rows = []
    print(f"\n{'B, T, U':>16} {'variant':>18} {'ms':>8} {'GiB':>7}  TFLOP/s of 4 products")
    for shape in shapes:
        sets = [draw(*shape, *sizes, seed) for seed in (1, 2)]
        cells = shape[0] * shape[1] * (shape[2] + 1)
        for variant in names:
            found = measure(VARIANTS[variant], sets, 9 if variant == "torchaudio" else 21)
            rate = cells * sizes[0] * sizes[1] * 8 / found["ms"] / 1e9
            rows.append({"shape": shape, "variant": variant, **found})
            print(f"{shape!s:>16} {variant:>18} {found['ms']:8.2f} {found['gib']:7.3f}  {rate:6.0f}", flush=True)
        del sets
        forget(DEVICE)
    return rows


def show_kernels(shape: Shape, names: list[str], sizes: tuple[int, int]) -> dict[str, dict[str, float]]:
    """Where the time of each lean variant goes."""
    data = draw(*shape, *sizes, 1)
    found = {}

    def once(variant: str) -> None:
        with_gradients(VARIANTS[variant](data), data)

    for variant in names:
        found[variant] = times = kernel_times(partial(once, variant))
        print(f"\nkernels of {variant}, {shape}: {sum(times.values()):.2f} ms")
        for kernel, milliseconds in list(times.items())[:14]:
            print(f"  {milliseconds:7.3f}  {kernel}")
    return found


def joint_of(data: Data) -> JointWeights:
    """What the passes take."""
    extent = Extent(tuple(data.lengths.tolist()), tuple(data.target_lengths.tolist()))
    encoded, predicted, weight, bias = (part.detach() for part in data.parts)
    return JointWeights(encoded, predicted, weight, bias, data.targets, extent, Lattice(weight.shape[0] - 1))


PRODUCT_TILES = [
    (128, 128, 64, 4, 3), (128, 128, 64, 4, 4), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4), (64, 256, 64, 4, 3), (64, 256, 64, 4, 4), (64, 128, 64, 4, 4), (256, 128, 64, 8, 3),
    (256, 128, 64, 8, 4), (128, 128, 32, 4, 5), (128, 128, 128, 8, 2), (256, 64, 64, 8, 4),
]  # fmt: skip


def sweep(shape: Shape) -> list[dict[str, Any]]:
    """Each kernel under other tilings, all cells; times are of the whole shape."""
    joint = joint_of(draw(*shape, OUTPUTS, WIDTH, 1))
    scale = torch.ones(shape[0], device=DEVICE)
    product = joint.extent.rows * OUTPUTS * WIDTH * 2 / 1e9
    rows: list[dict[str, Any]] = []

    def look(kernel: str, tiling: _fused.Tiling, what: str) -> None:
        try:
            with every_cell():
                _, saved = _fused.forward(joint, tiling)
                times = kernel_times(lambda: _fused.forward(joint, tiling))
                back = kernel_times(lambda: _fused.backward(joint, saved, scale, tiling))
        except Exception as error:
            print(f"{kernel:>13} {what:<28} {type(error).__name__}: {str(error)[:90]}", flush=True)
            return
        own = {name: value for name, value in (times | back).items() if kernel in name}
        rows.append({"kernel": kernel, "what": what, "forward": times, "backward": back})
        rate = (
            f"{product / max(sum(own.values()), 1e-9):5.0f} TFLOP/s"
            if kernel in ("logsumexp_kernel", "output_grad_kernel")
            else ""
        )
        both = (sum(times.values()), sum(back.values()))
        print(
            f"{kernel:>13} {what:<28} {sum(own.values()):7.3f} ms {rate} (all: {both[0]:.2f} + {both[1]:.2f})",
            flush=True,
        )

    base = _fused.HALF_TILING
    for values in PRODUCT_TILES:
        look("logsumexp_kernel", replace(base, forward=_fused.Tile(*values)), str(values))
    for values in PRODUCT_TILES:
        look("output_grad_kernel", replace(base, backward=_fused.Tile(*values)), str(values))
    for hidden in ((32, 64), (64, 64), (128, 64), (32, 128), (64, 128)):
        look("hidden_kernel", replace(base, hidden_rows=hidden[0], hidden_width=hidden[1]), str(hidden))
    for inner in (
        (16, 1, 64),
        (16, 2, 64),
        (16, 4, 64),
        (16, 8, 64),
        (16, 4, 128),
        (16, 1, 128),
        (8, 4, 64),
        (32, 2, 64),
    ):
        tiling = replace(base, frames=inner[0], labels=inner[1], columns=inner[2])
        look("inner_kernel", tiling, str(inner))
    for chunk in (1 << 14, 1 << 15, 1 << 16, 1 << 17):
        look("", replace(base, chunk=chunk), f"chunk {chunk}")
    return rows


def main() -> None:
    """Check, compare, or sweep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--sweep", action="store_true", help="needs a CUDA device")
    parser.add_argument("--tiny", action="store_true", help="a few frames and outputs")
    parser.add_argument("--shapes", help=SHAPES)
    parser.add_argument("--variants", default=";".join(VARIANTS), help="names joined by ;")
    options = parser.parse_args()
    sizes = (TINY_OUTPUTS, TINY_WIDTH) if options.tiny else (OUTPUTS, WIDTH)
    shapes = [as_shape(text) for text in (options.shapes or (TINY_SHAPES if options.tiny else SHAPES)).split(",")]
    names = [each for each in options.variants.split(";") if each != "torchaudio" or find_spec("torchaudio")]
    results: dict[str, Any] = {"device": name(DEVICE), "torch": torch.__version__, "python": sys.version.split()[0]}
    results |= {"triton": version("triton"), "tiling": asdict(_fused.HALF_TILING)}
    print(results)
    if options.sweep:
        results["sweep"] = sweep(max(shape for shape in shapes if shape[0] == 16))
    else:
        results["distances"] = check(names, sizes)
        results["times"] = compare(shapes, names, sizes)
        lean = [each for each in names if each != "torchaudio"]
        results["kernels"] = show_kernels(
            next((each for each in shapes[::-1] if each[0] == 16), shapes[-1]), lean, sizes
        )
    options.out.mkdir(parents=True, exist_ok=True)
    target = "sweep.json" if options.sweep else "results.json"
    (options.out / target).write_text(json.dumps(results, indent=1) + "\n")


def as_shape(text: str) -> Shape:
    """Utterances x frames x labels."""
    batch, frames, labels = map(int, text.split("x"))
    return batch, frames, labels


if __name__ == "__main__":
    main()
