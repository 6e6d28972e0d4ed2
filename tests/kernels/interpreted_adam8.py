"""Runs the kernel of 8-bit AdamW in Triton's interpreter, and prints how far it is off plain torch.

TRITON_INTERPRET=1 python tests/kernels/interpreted_adam8.py
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from eight_bits import distances
from guarded import guard

if __name__ == "__main__":
    guard()
    print(json.dumps(distances()))
