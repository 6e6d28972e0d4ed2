"""Runs the Triton kernels in Triton's interpreter, in a process of its own, and prints how far off each case is.

TRITON_INTERPRET=1 python tests/kernels/interpreted.py
"""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from attune.kernels import _fused, _tiles
from attune.kernels._lattice import Extent, Lattice

from lattices import distance, make_case

RAGGED = [(6, 3), (1, 0), (3, 5), (5, 0)]
SINGLE, HALF = torch.float32, torch.float16
CASES = {  # tokens are chosen about the tiles' 32 columns: only a tail, a tail and tiles, no tail at all
    "only a tail": (make_case(RAGGED, 9, 8), SINGLE),
    "tiles and a tail": (make_case(RAGGED, 40, 20), SINGLE),
    "tiles alone": (make_case(RAGGED, 63, 20), SINGLE),
    "labels in the tail": (make_case(RAGGED, 60, 20, Lattice(60, activation="tanh")), SINGLE),
    "durations": (make_case(RAGGED, 70, 24, Lattice(70, (0, 1, 2, 3, 4), 0.05)), SINGLE),
    "durations in a row": (make_case(RAGGED, 62, 24, Lattice(62, (0, 1, 2), 0.05, 0.2, "sigmoid")), SINGLE),
    "fastemit": (make_case(RAGGED, 40, 20, Lattice(40, fastemit=0.1)), SINGLE),
    "no path": (make_case([(3, 5), (9, 2)], 20, 24, Lattice(20, (1, 2))), SINGLE),
    "a narrow band": (make_case([(50, 16)], 7, 4), SINGLE),
    "half": (make_case(RAGGED, 70, 24), HALF),
}


def far_off(name: str) -> dict[str, float]:
    """The kernels against plain torch in float64, on the same rounded inputs."""
    case, dtype = CASES[name]
    extent = Extent(tuple(case.lengths.tolist()), tuple(case.target_lengths.tolist()))
    narrow = [part.detach().to(dtype) for part in case.parts]
    ours = _tiles.JointWeights(*narrow, case.targets, extent, case.lattice)
    exact = _tiles.JointWeights(*(part.double() for part in narrow), case.targets, extent, case.lattice)
    tile = _fused.Tile(64, 32, 32, 4, 2)
    tiling = _fused.Tiling(
        tile, tile, chunk=extent.rows // 2, hidden_rows=64, hidden_width=16, frames=4, labels=2, columns=16
    )
    total, saved = _fused.forward(ours, tiling)
    wanted, kept = _tiles.forward(exact)
    scale = torch.linspace(-0.5, 2, len(total))
    found, right = _fused.backward(ours, saved, scale, tiling), _tiles.backward(exact, kept, scale.double())
    possible = torch.isfinite(wanted)
    parts = {part: distance(getattr(found, part), getattr(right, part)) for part in _tiles.JointGradients.__slots__}
    same = torch.equal(possible, torch.isfinite(total))
    return {"loss": distance(total[possible], wanted[possible]) if same else float("inf"), **parts}


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # new memory is full of NaN: what is read before it is written shows
    print(json.dumps({name: far_off(name) for name in CASES}))
