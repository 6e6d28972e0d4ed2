"""Runs the kernels of batch normalization in Triton's interpreter, and prints how far each is off plain torch.

TRITON_INTERPRET=1 python tests/kernels/interpreted_norm.py
"""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from attune.kernels import _norm, _triton_norm

from guarded import guard
from norms import distances, norm_case

if __name__ == "__main__":
    guard()
    cases = {"single": torch.float32, "half": torch.float16}
    found = {name: distances(_triton_norm, _norm, norm_case(dtype)) for name, dtype in cases.items()}
    print(json.dumps(found))
