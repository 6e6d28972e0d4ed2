"""Runs the Triton kernels in Triton's interpreter on odd shapes and values, and looks at every address they touch.

TRITON_INTERPRET=1 python tests/kernels/guarded.py FIRST_SEED SEEDS
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
from triton.runtime import interpreter

sys.path.insert(0, str(Path(__file__).parents[1]))

from attune.kernels import _fused, _tiles, _triton
from attune.kernels._lattice import Extent, Lattice

from lattices import make_case

SPANS: list[tuple[int, int]] = []  # the memory of the tensors that the running kernel was given
HALF = (_fused.Tile(16, 32, 32, 4, 2), _fused.Tile(32, 16, 16, 4, 2))


def guard() -> None:
    """From now on a kernel that touches anything but its own tensors is an error, and new memory is full of NaN."""
    torch.use_deterministic_algorithms(True)
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    load, store, lay_out = builder.create_masked_load, builder.create_masked_store, executor._init_args_hst

    def checked_load(self, pointers, mask, *rest):
        _check("reads", pointers, mask)
        return load(self, pointers, mask, *rest)

    def checked_store(self, pointers, value, mask, *rest):
        _check("writes", pointers, mask)
        return store(self, pointers, value, mask, *rest)

    def laid_out(self, given, named):
        here, also = lay_out(self, given, named)
        tensors = [each for each in here if isinstance(each, torch.Tensor)]
        SPANS[:] = [(each.data_ptr(), each.data_ptr() + each.numel() * each.element_size()) for each in tensors]
        return here, also

    builder.create_masked_load, builder.create_masked_store = checked_load, checked_store
    executor._init_args_hst = laid_out


def _check(does: str, pointers: interpreter.TensorHandle, mask: interpreter.TensorHandle) -> None:
    touched = pointers.data[np.broadcast_to(mask.data, pointers.data.shape).astype(bool)].astype(np.int64)
    inside = np.zeros(touched.shape, bool)
    size = pointers.get_element_ty().primitive_bitwidth // 8
    for start, end in SPANS:
        inside |= (touched >= start) & (touched + size <= end)
    if not inside.all():
        raise IndexError(f"a kernel {does} {int((~inside).sum())} values outside its tensors")


def _single(joint: _tiles.JointWeights) -> _tiles.JointWeights:
    parts = (part.float() for part in (joint.encoded, joint.predicted, joint.weight, joint.bias))
    return _tiles.JointWeights(*parts, joint.targets, joint.extent, joint.lattice)


def run(seed: int) -> None:
    """A batch of a random shape, perhaps with values that are no numbers."""
    chance = random.Random(seed)
    sizes = [(chance.choice([1, 2, 5, 9]), chance.choice([0, 1, 3, 17])) for _ in range(chance.randint(1, 4))]
    tokens, width = chance.choice([4, 31, 32, 64, 96]), chance.choice([8, 32, 40, 72])
    durations = chance.choice([(), (), (0, 1, 2)])
    case = make_case(sizes, tokens, width, Lattice(tokens, durations, activation=chance.choice(["relu", "tanh"])), seed)
    dtype = chance.choice([torch.float32, torch.float16])
    parts = [part.detach().to(dtype) for part in case.parts]
    bad = chance.choice([None, None, float("nan"), float("inf"), float("-inf")])
    if bad is not None:
        parts[chance.randint(0, 3)].view(-1)[chance.choice([0, slice(None), slice(None, None, 7)])] = bad
    extent = Extent(tuple(case.lengths.tolist()), tuple(case.target_lengths.tolist()))
    joint = _tiles.JointWeights(*parts, case.targets, extent, case.lattice)
    tiling = _fused.Tiling(
        *HALF, chunk=chance.choice([1, 20, 1000]), hidden_rows=16, hidden_width=chance.choice([16, 64]),
        frames=chance.choice([2, 4, 32]), labels=2, columns=chance.choice([16, 64]),
    )  # fmt: skip
    total, saved = _fused.forward(joint, tiling)
    if bad is not None and not torch.isfinite(total[_tiles.forward(_single(joint))[0].isnan()]).logical_not().all():
        raise ValueError("a loss that is no number looks like one")
    scale = torch.linspace(-0.5, 2, len(total)) * chance.choice([0.0, 1.0, float("inf"), float("nan"), 1.0])
    _fused.backward(joint, saved, scale, tiling)


def run_far() -> None:
    """Output gradients of more than 2 ** 31 values, whose addresses 32 bits do not hold; few of them are touched."""
    stride, width, tile, rows = 1 << 30, 16, 16, 4
    far = torch.from_numpy(np.empty(3 * stride + 2 * tile, np.int8))  # memory that nobody touches takes none
    zeros = torch.zeros(rows, dtype=torch.int32)
    places = (zeros, zeros, zeros - 1, torch.zeros(rows), torch.ones(rows), torch.ones(rows), torch.ones(1))
    bias = torch.empty(2 * tile)
    hidden, weight = torch.zeros(rows, width), torch.zeros(tile, width)
    _triton.output_grad_kernel[1,](
        hidden, weight, torch.full((tile,), 3.0), *places, far, bias, 0, rows, 1, tile - 1, stride, 1, J=width,
        BLOCK_R=16, BLOCK_V=tile, BLOCK_K=16, PRECISION="ieee",
    )  # fmt: skip
    row, cell, target, norm, blank, label, scale = places
    _triton.output_grad_tail_kernel[1,](
        torch.full((rows, tile), 3.0), row, cell, target, norm, norm, blank, label, torch.zeros(1), scale, far, bias, 0,
        rows, 2 * tile - 1, stride, 1, tile, D=0, TAIL=tile, BLOCK_R=16,
    )  # fmt: skip
    if not all((far[place : place + 2 * tile - 1] != 0).all() for place in range(0, rows * stride, stride)):
        raise ValueError("output gradients beyond 2 ** 31 values are not where they belong")


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    np.seterr(all="ignore")
    guard()
    for seed in range(first, first + count):
        try:
            run(seed)
        except Exception as error:
            sys.exit(f"seed {seed}: {error}")
    run_far()
    print(json.dumps({"batches": count}))
