"""A step of 8-bit AdamW over one tensor in Triton: one launch, where torch needs about thirty.

The formulas are those of `training/adam8.py`. A program processes whole blocks, each with its own two scales; there is
no reduction across programs: results are bit-identical each time.
"""

# A kernel's arguments are pointers and numbers of the compiler's own types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001
from collections.abc import Mapping

import triton
import triton.language as tl
from torch import Tensor

ROWS = 8  # blocks per program
ROUNDING = tl.constexpr(1.5 * 2.0**23)  # adding and subtracting it rounds to the nearest integer
TINY = tl.constexpr(2.0**-126)  # the smallest normal float32


@triton.jit
def _dequantize(codes, scale, MOST: tl.constexpr) -> tl.tensor:
    steps = tl.div_rn(codes.to(tl.float32), MOST)
    return steps * tl.abs(steps) * scale[:, None]


@triton.jit
def _quantize(values, scale, MOST: tl.constexpr) -> tl.tensor:
    parts = tl.div_rn(values, tl.maximum(scale, TINY)[:, None])
    steps = tl.sqrt_rn(tl.abs(parts)) * MOST
    whole = (steps + ROUNDING) - ROUNDING
    return tl.where(parts < 0, -whole, whole)


@triton.jit(do_not_specialize=["size", "blocks"])
def step_kernel(
    weight, gradient, mean, mean_scale, root, root_scale, size, blocks, one_minus_beta1, beta2, one_minus_beta2,
    correction, eps, decay_factor, lr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    is_block, has_codes, has_weight = block < blocks, place < blocks * BLOCK, place < size
    grad = tl.load(gradient + place, mask=has_weight, other=0.0)
    scale = tl.load(mean_scale + block, mask=is_block, other=0.0)
    means = _dequantize(tl.load(mean + place, mask=has_codes, other=0), scale, 127.0)
    means += one_minus_beta1 * (grad - means)
    scale = tl.load(root_scale + block, mask=is_block, other=0.0)
    roots = _dequantize(tl.load(root + place, mask=has_codes, other=0), scale, 255.0)
    roots = tl.sqrt_rn(roots * roots * beta2 + grad * grad * one_minus_beta2)
    scale = tl.max(tl.abs(means), 1)
    tl.store(mean_scale + block, scale, mask=is_block)
    tl.store(mean + place, _quantize(means, scale, 127.0).to(tl.int8), mask=has_codes)
    scale = tl.max(roots, 1)
    tl.store(root_scale + block, scale, mask=is_block)
    tl.store(root + place, tl.maximum(_quantize(roots, scale, 255.0), 1.0).to(tl.uint8), mask=has_codes)
    update = tl.div_rn(means, tl.div_rn(roots, correction) + eps)
    decayed = tl.load(weight + place, mask=has_weight, other=0.0) * decay_factor
    tl.store(weight + place, decayed - update * lr, mask=has_weight)


def step(
    weight: Tensor,
    gradient: Tensor,
    memory: Mapping[str, Tensor],
    betas: tuple[float, float],
    correction: float,
    eps: float,
    decay_factor: float,
    lr: float,
) -> None:
    """Update float32 weights and their optimizer state in place; a row of the state is a block."""
    blocks, block = memory["mean"].shape
    step_kernel[triton.cdiv(blocks, ROWS),](
        weight, gradient, *(memory[name] for name in ("mean", "mean_scale", "root", "root_scale")), weight.numel(),
        blocks, 1 - betas[0], betas[1], 1 - betas[1], correction, eps, decay_factor, lr, ROWS=ROWS, BLOCK=block,
        num_warps=8,
    )  # fmt: skip
