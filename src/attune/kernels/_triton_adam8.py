"""A step of 8-bit AdamW over one tensor by Triton: one launch, where torch needs some thirty.

The formulas are those of `training/adam8.py`. A program takes whole blocks, each with its own two scales; nothing is
added up across programs: the same bits each time.
"""

# A kernel's arguments are pointers and numbers of the compiler's own types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001
from collections.abc import Mapping

import triton
import triton.language as tl
from torch import Tensor

ROWS = 8  # blocks of a program
ROUNDING = tl.constexpr(1.5 * 2.0**23)  # added and taken away again, it leaves the nearest whole number
TINY = tl.constexpr(2.0**-126)  # the least float32 that divides as it should


@triton.jit
def _decoded(codes, scale, MOST: tl.constexpr) -> tl.tensor:
    steps = tl.div_rn(codes.to(tl.float32), MOST)
    return steps * tl.abs(steps) * scale[:, None]


@triton.jit
def _encoded(values, scale, MOST: tl.constexpr) -> tl.tensor:
    parts = tl.div_rn(values, tl.maximum(scale, TINY)[:, None])
    steps = tl.sqrt_rn(tl.abs(parts)) * MOST
    whole = (steps + ROUNDING) - ROUNDING
    return tl.where(parts < 0, -whole, whole)


@triton.jit(do_not_specialize=["size", "blocks"])
def step_kernel(
    weight, gradient, mean, mean_scale, root, root_scale, size, blocks, fresh1, beta2, fresh2, correction, eps, kept,
    rate, ROWS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    is_block, has_codes, has_weight = block < blocks, place < blocks * BLOCK, place < size
    slope = tl.load(gradient + place, mask=has_weight, other=0.0)
    scale = tl.load(mean_scale + block, mask=is_block, other=0.0)
    means = _decoded(tl.load(mean + place, mask=has_codes, other=0), scale, 127.0)
    means += fresh1 * (slope - means)
    scale = tl.load(root_scale + block, mask=is_block, other=0.0)
    roots = _decoded(tl.load(root + place, mask=has_codes, other=0), scale, 255.0)
    roots = tl.sqrt_rn(roots * roots * beta2 + slope * slope * fresh2)
    scale = tl.max(tl.abs(means), 1)
    tl.store(mean_scale + block, scale, mask=is_block)
    tl.store(mean + place, _encoded(means, scale, 127.0).to(tl.int8), mask=has_codes)
    scale = tl.max(roots, 1)
    tl.store(root_scale + block, scale, mask=is_block)
    tl.store(root + place, tl.maximum(_encoded(roots, scale, 255.0), 1.0).to(tl.uint8), mask=has_codes)
    move = tl.div_rn(means, tl.div_rn(roots, correction) + eps)
    tl.store(weight + place, tl.load(weight + place, mask=has_weight, other=0.0) * kept - move * rate, mask=has_weight)


def step(
    weight: Tensor,
    gradient: Tensor,
    memory: Mapping[str, Tensor],
    betas: tuple[float, float],
    correction: float,
    eps: float,
    kept: float,
    rate: float,
) -> None:
    """Change float32 weights by their gradients, and what is remembered of these, which is in rows of a block."""
    blocks, block = memory["mean"].shape
    step_kernel[triton.cdiv(blocks, ROWS),](
        weight, gradient, *(memory[name] for name in ("mean", "mean_scale", "root", "root_scale")), weight.numel(),
        blocks, 1 - betas[0], betas[1], 1 - betas[1], correction, eps, kept, rate, ROWS=ROWS, BLOCK=block, num_warps=8,
    )  # fmt: skip
