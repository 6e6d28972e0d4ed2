"""Joint network and transducer loss, forward and backward, beside torchaudio's rnnt_loss, in one run.

    PYTHONPATH=src python3 benchmarks/transducer_loss.py OUT [--sweep] [--shapes 16x500x100,…] [--variants lean,…]

OUT is where results.json goes. Needs a CUDA device with Triton; torchaudio is the peer where it is installed. The peer
gets float32 logits of a bf16 joint and its log-softmax fused. Without --sweep: correctness, then times and memory of
every shape (utterances x frames x labels; 1024 outputs, joint width 640), and each kernel's share for the largest of
16. With --sweep: each kernel under other tilings.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.kernels import _fused
from attune.kernels._lattice import Extent
from attune.kernels._tiles import JointWeights
from attune.kernels.transducer import Lattice, transducer_loss

OUTPUTS, WIDTH = 1024, 640
SHAPES = "8x250x60,16x250x60,32x250x60,8x500x100,16x500x100,32x500x100"
GIB = 2.0**30
DEVICE = "cuda"
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
    return rnnt_loss(logits, data.targets.int(), *lengths, blank, reduction="none", fused_log_softmax=True)


def lean_losses(data: Data, durations: int = 0) -> Tensor:
    """attune; the last outputs are durations if there are any."""
    lattice = Lattice(data.parts[2].shape[0] - 1 - durations, tuple(range(durations)))
    return transducer_loss(*data.parts, data.targets, data.lengths, data.target_lengths, lattice)


@contextmanager
def every_cell() -> Iterator[None]:
    """Gradients of all cells, also of those that no path passes."""
    usual, _fused.NEGLIGIBLE = _fused.NEGLIGIBLE, -1.0
    try:
        yield
    finally:
        _fused.NEGLIGIBLE = usual


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


def check(names: list[str]) -> dict[str, Any]:
    """Losses and gradients of random ragged data against float64 on the same bf16 inputs."""
    results = {}
    for outputs, width, seed in ((OUTPUTS, WIDTH, 1), (OUTPUTS + 1, WIDTH, 2), (97, 72, 3)):
        data = draw(3, 70, 24, outputs, width, seed, ragged=True)
        exact = replace(data, parts=tuple(part.detach().double().requires_grad_() for part in data.parts))
        for name in names:
            durations = 5 if "durations" in name else 0
            wanted = with_gradients(lean_losses(exact, durations), exact)  # float64: plain torch
            found = with_gradients(VARIANTS[name](data), data)
            far = {part: distance(*pair) for part, *pair in zip(("loss", *PARTS), found, wanted, strict=True)}
            again = with_gradients(VARIANTS[name](data), data)
            same = all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
            results[f"{name}, {outputs} outputs, width {width}"] = {**far, "same bits": same}
            said = "  ".join(f"{part} {value:.1e}" for part, value in far.items())
            print(f"{name:>18} {outputs:5d} x {width:3d}  {said}  same bits twice: {same}", flush=True)
    if "torchaudio" in names:
        results["float32 against torchaudio"] = check_single()
    return results


def check_single() -> dict[str, float]:
    """Float32 inputs against torchaudio on float32 logits."""
    data = draw(3, 70, 24, OUTPUTS + 1, WIDTH, 4, ragged=True)
    single = replace(data, parts=tuple(part.detach().float().requires_grad_() for part in data.parts))
    found = with_gradients(lean_losses(single), single)
    wanted = with_gradients(peer_losses(single), single)
    exact = replace(data, parts=tuple(part.detach().double().requires_grad_() for part in data.parts))
    truth = with_gradients(lean_losses(exact), exact)
    far = {f"{part}": distance(*pair) for part, *pair in zip(("loss", *PARTS), found, wanted, strict=True)}
    far |= {f"{part} of float64": distance(*pair) for part, *pair in zip(("loss", *PARTS), found, truth, strict=True)}
    print("float32 against torchaudio, and float64: " + "  ".join(f"{part} {value:.1e}" for part, value in far.items()))
    return far


def measure(losses: Callable[[Data], Tensor], sets: list[Data], repeats: int) -> dict[str, float]:
    """Median milliseconds by events over rotating inputs, and the peak of memory beyond them."""
    for data in sets + sets:
        with_gradients(losses(data), data)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    times = []
    for index in range(repeats):
        data = sets[index % len(sets)]
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        with_gradients(losses(data), data)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    peak = (torch.cuda.max_memory_allocated() - held) / GIB
    return {"ms": statistics.median(times), "ms_least": min(times), "ms_most": max(times), "gib": peak}


def kernel_times(work: Callable[[], object], repeats: int = 3) -> dict[str, float]:
    """Milliseconds of each kernel in one run of the work."""
    work()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
    times: dict[str, float] = defaultdict(float)
    for event in profile.key_averages():
        times[event.key[:60]] += event.self_device_time_total / 1000 / repeats
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def compare(shapes: list[tuple[int, int, int]], names: list[str]) -> list[dict[str, Any]]:
    """Every variant on every shape."""
    rows = []
    print(f"\n{'B, T, U':>16} {'variant':>18} {'ms':>8} {'GiB':>7}  TFLOP/s of 4 products")
    for shape in shapes:
        sets = [draw(*shape, OUTPUTS, WIDTH, seed) for seed in (1, 2)]
        cells = shape[0] * shape[1] * (shape[2] + 1)
        for name in names:
            found = measure(VARIANTS[name], sets, 9 if name == "torchaudio" else 21)
            rate = cells * OUTPUTS * WIDTH * 8 / found["ms"] / 1e9
            rows.append({"shape": shape, "variant": name, **found})
            print(f"{shape!s:>16} {name:>18} {found['ms']:8.2f} {found['gib']:7.3f}  {rate:6.0f}", flush=True)
        del sets
        torch.cuda.empty_cache()
    return rows


def show_kernels(shape: tuple[int, int, int], names: list[str]) -> dict[str, dict[str, float]]:
    """Where the time of each lean variant goes."""
    data = draw(*shape, OUTPUTS, WIDTH, 1)
    found = {}
    for name in names:
        times = kernel_times(lambda name=name: with_gradients(VARIANTS[name](data), data))
        found[name] = times
        print(f"\nkernels of {name}, {shape}: {sum(times.values()):.2f} ms")
        for kernel, milliseconds in list(times.items())[:14]:
            print(f"  {milliseconds:7.3f}  {kernel}")
    return found


def joint_of(data: Data) -> JointWeights:
    """What the passes take."""
    extent = Extent(tuple(data.lengths.tolist()), tuple(data.target_lengths.tolist()))
    parts = (part.detach() for part in data.parts)
    return JointWeights(*parts, data.targets, extent, Lattice(data.parts[2].shape[0] - 1))


PRODUCT_TILES = [
    (128, 128, 64, 4, 3), (128, 128, 64, 4, 4), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4), (64, 256, 64, 4, 3), (64, 256, 64, 4, 4), (64, 128, 64, 4, 4), (256, 128, 64, 8, 3),
    (256, 128, 64, 8, 4), (128, 128, 32, 4, 5), (128, 128, 128, 8, 2), (256, 64, 64, 8, 4),
]  # fmt: skip


def sweep(shape: tuple[int, int, int]) -> list[dict[str, Any]]:
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

    usual = _fused.HALF_TILING
    for values in PRODUCT_TILES:
        look("logsumexp_kernel", replace(usual, forward=_fused.Tile(*values), backward=usual.backward), str(values))
    for values in PRODUCT_TILES:
        look("output_grad_kernel", replace(usual, forward=usual.forward, backward=_fused.Tile(*values)), str(values))
    for hidden in ((32, 64), (64, 64), (128, 64), (32, 128), (64, 128)):
        look("hidden_kernel", replace(usual, hidden_rows=hidden[0], hidden_width=hidden[1]), str(hidden))
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
        tiling = replace(usual, frames=inner[0], labels=inner[1], columns=inner[2])
        look("inner_kernel", tiling, str(inner))
    for chunk in (1 << 14, 1 << 15, 1 << 16, 1 << 17):
        look("", replace(usual, chunk=chunk), f"chunk {chunk}")
    return rows


def main() -> None:
    """Check, compare, or sweep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--variants", default=";".join(VARIANTS), help="names joined by ;")
    options = parser.parse_args()
    shapes = [tuple(int(size) for size in shape.split("x")) for shape in options.shapes.split(",")]
    names = options.variants.split(";")
    versions = {"torch": torch.__version__, "triton": _fused.triton.__version__, "python": sys.version.split()[0]}
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), **versions, "tiling": asdict(_fused.HALF_TILING)}
    print(results)
    if options.sweep:
        results["sweep"] = sweep(max(shape for shape in shapes if shape[0] == 16))
    else:
        results["distances"] = check(names)
        results["times"] = compare(shapes, names)
        lean = [name for name in names if name != "torchaudio"]
        results["kernels"] = show_kernels((16, 500, 100), lean)
    options.out.mkdir(parents=True, exist_ok=True)
    name = "sweep.json" if options.sweep else "results.json"
    (options.out / name).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
