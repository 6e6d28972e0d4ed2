"""The largest batch of 16 s utterances that ContextNet large trains on, and its speed, with either loss.

    python benchmarks/transducer_batch.py OUT [--size large] [--seconds 16]

OUT is where transducer_batch.json goes. The same model, data and optimizer each time; "lean" is attune's loss, "full
lattice" the same joint network written out with torchaudio's rnnt_loss on float32 logits. A batch trains when three
steps of it (bf16, AdamW) go through; the speed is of the last two. `--tiny` is to try the script on a CPU: one batch.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.families.transducer import model as family
from attune.families.transducer.build import description
from attune.families.transducer.settings import TransducerConfig
from attune.families.transducer.shape import read_shape
from attune.kernels.transducer import transducer_loss
from attune.types import SAMPLE_RATE, Batch, TokenTargets

from on_device import forget, name, usual, wait

TOKENS, LABELS_PER_SECOND = 1024, 4
DEVICE = usual()


def full_lattice(
    encoded: Tensor, predicted: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, *rest: Any
) -> Tensor:
    """The loss of torchaudio on all outputs at once."""
    from torchaudio.functional import rnnt_loss

    lengths, target_lengths, lattice, _ = rest
    logits = F.linear(torch.relu(encoded[:, :, None] + predicted[:, None]), weight, bias).float()
    sizes = lengths.int(), target_lengths.int()
    losses: Tensor = rnnt_loss(logits, targets.int(), *sizes, lattice.blank, reduction="none", fused_log_softmax=True)
    return losses


def build(size: str) -> family.TransducerModel:
    """ContextNet with random weights."""
    torch.manual_seed(17)
    described = description(TransducerConfig(encoder="contextnet", size=size, tokens="task"), Path())  # type: ignore[arg-type]
    pieces = [f"▁{token}" for token in range(TOKENS)]
    return family.TransducerModel(read_shape(described), pieces, described).to(DEVICE).train()


def batch_of(rows: int, seconds: float) -> Batch:
    """Noise, and labels drawn at random."""
    samples, labels = round(seconds * SAMPLE_RATE), max(1, round(LABELS_PER_SECOND * seconds))
    return Batch(
        tuple(map(str, range(rows))),
        0.1 * torch.randn(rows, samples, device=DEVICE),
        torch.full((rows,), samples, device=DEVICE),
        TokenTargets(torch.randint(TOKENS, (rows, labels), device=DEVICE), torch.full((rows,), labels, device=DEVICE)),
    )


def train(model: Any, optimizer: torch.optim.Optimizer, seconds: float, rows: int) -> float | None:
    """Seconds of a step, or None if the batch does not fit."""
    try:
        batch = batch_of(rows, seconds)
        for number in range(3):
            if number == 1:
                wait(DEVICE)
                start = time.perf_counter()
            with torch.autocast(DEVICE.type, torch.bfloat16):
                loss = model.loss(batch)
            (loss.total / loss.count).backward()
            optimizer.step()
            optimizer.zero_grad()
        wait(DEVICE)
        return (time.perf_counter() - start) / 2
    except RuntimeError as error:  # torch.OutOfMemoryError is one; torchaudio says only that it could not allocate
        if not isinstance(error, torch.OutOfMemoryError) and "aten::empty" not in str(error):
            raise
        return None
    finally:
        optimizer.zero_grad()
        forget(DEVICE)


def largest(fits: Callable[[int], float | None], first: int) -> dict[int, float]:
    """Double the batch until it does not fit, then close in on the edge; the seconds of each batch that fitted."""
    found: dict[int, float] = {}
    low, high = 0, 0  # the largest that fits and the smallest that does not
    while high == 0 or high - low > first // 2:
        rows = (low + high) // 2 if high else max(first, 2 * low)
        seconds = fits(rows)
        if seconds is None:
            high = rows
        else:
            low, found[rows] = rows, seconds
    return found


def main() -> None:
    """Measure both losses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="large")
    parser.add_argument("--seconds", type=float, default=16.0)
    parser.add_argument("--first", type=int, default=32)
    parser.add_argument("--tiny", action="store_true", help="the dummy size, one second, one batch")
    given = parser.parse_args()
    if given.tiny:
        given.size, given.seconds, given.first = "dummy", 1.0, 2
    results: dict[str, Any] = {"device": name(DEVICE), "torch": torch.__version__}
    losses: dict[str, Callable[..., Tensor]] = {"lean": transducer_loss}
    if find_spec("torchaudio"):
        losses["full lattice"] = full_lattice
    for which, loss in losses.items():
        vars(family)["transducer_loss"] = loss
        model = build(given.size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        fits = partial(train, model, optimizer, given.seconds)
        steps = {given.first: fits(given.first) or 0.0} if given.tiny else largest(fits, given.first)
        speeds = {rows: round(rows * given.seconds / seconds, 1) for rows, seconds in steps.items()}
        results[which] = {"largest batch": max(steps), "audio hours per hour": speeds}
        print(which, json.dumps(results[which]), flush=True)
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "transducer_batch.json").write_text(json.dumps(results, indent=1) + "\n")
        del model, optimizer, fits
        forget(DEVICE)


if __name__ == "__main__":
    main()
