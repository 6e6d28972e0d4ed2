"""Damaged files through the command line. `make fuzz CASES=5000` tries more, in processes with limits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.kinds import KINDS
from fuzz.rule import break_rule

pytestmark = pytest.mark.recipe

CASES = int(os.environ.get("CASES", "0"))
PART = 250  # cases of a process


@pytest.mark.skipif(CASES > 0, reason="make fuzz")
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_messages(kind, tmp_path):
    assert not list(break_rule(kind, range(KINDS[kind].quick), tmp_path))


@pytest.mark.skipif(not CASES, reason="set CASES, or run: make fuzz")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files_are_messages(kind, tmp_path):
    first, broken = int(os.environ.get("FIRST", "0")), []
    while first < CASES:
        last = min(CASES, first - first % PART + PART)
        result = subprocess.run(
            [sys.executable, "-m", "fuzz.rule", kind, str(first), str(last), str(tmp_path / str(first))],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[1],
        )
        broken += [result.stdout] if result.stdout else []
        first = last
        if result.returncode:  # killed, crashed or hung: go on after that case
            reached = [int(line) for line in result.stderr.splitlines() if line.isdecimal()]
            broken.append(f"{kind} {reached[-1:]}: exit {result.returncode}\n{result.stderr[-3000:]}")
            first = reached[-1] + 1 if reached else last
    assert not broken, "\n".join(broken)
