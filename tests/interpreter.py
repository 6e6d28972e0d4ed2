"""Kernels in Triton's interpreter."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


def in_interpreter(script: str, *arguments: str) -> Any:
    """What a script prints last, in Triton's interpreter, which needs a process of its own."""
    if find_spec("triton") is None:
        pytest.skip("needs triton")
    command = [sys.executable, str(Path(__file__).parent / "kernels" / script), *arguments]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
