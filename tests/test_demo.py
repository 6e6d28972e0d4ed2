"""The product's story: it runs offline, halves the error on speakers it did not train on, and leaves a run behind."""

import re
import shlex
import subprocess
import sys

import pytest

from attune.run import Run

from processes import attune

pytestmark = pytest.mark.recipe


def test_the_demo_more_than_halves_the_error_on_unseen_speakers(tmp_path, monkeypatch):
    done = subprocess.run(
        [sys.executable, "-m", "attune", "demo"], capture_output=True, text=True, timeout=560, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    told = re.search(r"wer on unseen speakers: ([\d.]+) % .* before, ([\d.]+) %", done.stdout)
    before, after = float(told[1]), float(told[2])
    assert after < before / 2
    assert Run(tmp_path / "runs/demo").state() == "done"
    assert "attune verify runs/demo" in done.stdout and "ref" in done.stdout and "hyp" in done.stdout
    commands = done.stdout.partition("Next:\n")[2].splitlines()
    assert len(commands) == 4
    monkeypatch.chdir(tmp_path)
    for command in commands[:3]:  # the last one, `verify`, trains on and is tested by itself
        _, *words = shlex.split(command)
        assert attune(*words).returncode == 0
