"""On a simulated device every family trains and decodes as on the CPU, in a process that has nothing else to do."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.recipe

CHECKS = Path(__file__).with_name("device_checks.py")


def test_no_operation_has_tensors_of_two_devices():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
