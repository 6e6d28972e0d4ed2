"""`attune doctor` says what is wrong with a machine, and what to do about it."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from attune.launch.doctor import (
    TorchBuild,
    check_audio,
    check_bitsandbytes,
    check_orphans,
    check_storage,
    diagnose_torch,
    end_run,
    unused_gpu,
)
from attune.processes import RUN_ID_VARIABLE, find_run_processes
from attune.site import Site
from attune.sources import Cache

from processes import attune

CPU = TorchBuild("2.13.0", None, None, (), "", has_nvidia=False, has_amd=False, driver=None)
CUDA = replace(CPU, cuda="13.0", has_nvidia=True, driver="470.1")


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        (replace(CPU, has_nvidia=True), "Install a CUDA build"),
        (replace(CPU, hip="6.4", has_nvidia=True), "torch is built for ROCm"),
        (replace(CPU, has_amd=True), "Install a ROCm build"),
        (replace(CUDA, error="The NVIDIA driver on your system is too old (found version 11040)."), "newer driver"),
        (replace(CUDA, error="CUDA unknown error"), "CUDA unknown error"),
    ],
)
def test_a_torch_that_cannot_use_the_device_is_told_with_the_remedy(torch, said):
    finding = diagnose_torch(torch)
    assert finding.verdict == "bad" and said in finding.remedy


def test_a_gpu_that_is_not_used_is_named_unless_it_is_hidden(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "torch is built for ROCm" in unused_gpu(replace(CPU, hip="6.4", has_nvidia=True))
    assert unused_gpu(CPU) is None and unused_gpu(replace(CUDA, usable=("H200",))) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert unused_gpu(replace(CPU, has_nvidia=True)) is None


@pytest.mark.parametrize(
    ("step", "verdict", "what"),
    [('print("cpu")', "good", "works on cpu"), ('raise SystemExit("no kernel for this GPU")', "note", "no kernel")],
)
def test_bitsandbytes_is_tried_where_it_is_installed(monkeypatch, step, verdict, what):
    if importlib.util.find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")
    monkeypatch.setattr("attune.launch.doctor.EIGHT_BIT_STEP", step)
    (finding,) = check_bitsandbytes()
    assert finding.verdict == verdict and what in finding.what
    assert verdict == "good" or "adamw8bit" in finding.remedy


def test_a_machine_without_a_gpu_is_healthy():
    assert diagnose_torch(CPU).verdict == "good"
    assert diagnose_torch(replace(CUDA, usable=("H200",))).what.endswith("devices: H200")


def test_a_process_that_was_left_behind_is_listed_and_ended_only_when_asked():
    orphan = [
        sys.executable,
        "-c",
        "import subprocess as s; print(s.Popen(['sleep', '60'], stdout=-3, stderr=-3, start_new_session=True).pid)",
    ]
    made = subprocess.run(
        orphan, env={**os.environ, RUN_ID_VARIABLE: "lost-one"}, capture_output=True, text=True, timeout=20
    )
    pid = int(made.stdout)
    (finding,) = [each for each in check_orphans() if "lost-one" in each.what]
    assert finding.verdict == "bad" and str(pid) in finding.what and "--end lost-one" in finding.remedy
    assert [found.pid for found in find_run_processes("lost-one")] == [pid]  # looking did not harm it
    assert end_run("lost-one") == [pid]


def test_what_was_ended_is_told_to_programs_as_json():
    done = attune("doctor", "--end", "nobody", "--json")
    assert done.returncode == 0 and json.loads(done.stdout) == {"ended": []}


def test_a_broken_decoder_of_m4a_is_a_note(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", ModuleType("av"))
    sys.modules["av"].__spec__ = ModuleSpec("av", None)
    (found,) = (finding for finding in check_audio() if finding.about == "m4a")
    assert found.verdict == "note" and "broken" in found.what and "--force-reinstall av" in found.remedy


def test_room_is_measured_where_the_cache_will_be(tmp_path):
    findings = {each.about: each for each in check_storage(Site(Cache(tmp_path / "not" / "yet"), 1))}
    assert "GiB free" in findings["cache"].what and not (tmp_path / "not").exists()


@pytest.mark.recipe
def test_this_machine_is_well_and_says_so_to_programs():
    done = attune("doctor", "--json")
    findings = json.loads(done.stdout)
    bad = [each["about"] for each in findings if each["verdict"] == "bad"]
    assert set(bad) <= {"processes"}, done.stdout  # other tests, beside this one, kill launchers
    assert done.returncode == (1 if bad else 0)
    found = {each["about"]: each for each in findings}
    assert found["gloo"]["what"] == "all-reduce over 2 ranks works"
    for name in ("wav", "flac", "mp3", "ogg", "opus"):
        assert found[name]["verdict"] == "good"
    assert "torch" in found["packages"]["what"]
