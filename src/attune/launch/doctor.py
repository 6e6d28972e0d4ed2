"""Checks of this machine: versions, devices, collectives, audio, storage, orphaned processes; each with a remedy."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile

from attune.audio.decode import read_audio
from attune.errors import DataError
from attune.processes import RUN_ID_VARIABLE, RunProcess, find_run_processes
from attune.site import Site
from attune.types import SAMPLE_RATE
from attune.world import build_of

PACKAGES = (
    *("attune-speech", "torch", "transformers", "numpy", "soundfile", "soxr", "safetensors", "sentencepiece"),
    *("av", "bitsandbytes", "datasets", "kenlm", "peft", "ray", "tensorboard", "triton"),
)
FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
}
LOW_DISK, LOW_SHARED_MEMORY = 10 * 2**30, 2**30
TEST_SECONDS = 60

# Ranks rendezvous through a file, so that no port is needed.
ALL_REDUCE = """
import sys, torch, torch.distributed as dist
backend, place, rank, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
dist.init_process_group(backend, init_method=f"file://{place}", rank=rank, world_size=size)
number = torch.tensor([rank + 1.0], device=device)
dist.all_reduce(number)
dist.barrier()
dist.destroy_process_group()  # its threads must not outlive it
sys.exit(0 if float(number) == size * (size + 1) / 2 else 3)
"""

# In a process of its own: a build for another CUDA may end it.
EIGHT_BIT_STEP = """
import sys, torch, bitsandbytes
device = "cuda" if torch.cuda.is_available() else "cpu"
weight = torch.nn.Parameter(torch.ones(8192, device=device))
optimizer = bitsandbytes.optim.AdamW8bit([weight])
weight.sum().backward()
optimizer.step()
print(device)
sys.exit(0 if bool((weight != 1).all()) else "the weights did not change")
"""

Verdict = Literal["good", "note", "bad"]


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check; `bad` means that attune does not work, and has a remedy."""

    about: str
    what: str
    verdict: Verdict = "good"
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The installed torch, the devices it can use, and the devices of this machine."""

    version: str
    cuda: str | None  # the CUDA it was built for
    hip: str | None  # the ROCm
    usable: tuple[str, ...]  # names of the devices that it can compute on
    error: str  # why it can use none
    has_nvidia: bool
    has_amd: bool
    driver: str | None


def examine(site: Site) -> Iterator[DoctorFinding]:
    """All checks in turn; a machine without a GPU passes."""
    yield DoctorFinding("python", f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores")
    yield DoctorFinding("packages", ", ".join(f"{name} {version}" for name, version in versions().items()))
    yield diagnose_torch(inspect_torch())
    yield from check_bitsandbytes()
    yield from _check_collectives()
    yield from check_audio()
    yield from check_storage(site)
    yield from check_orphans()


def versions() -> dict[str, str]:
    """The installed versions of the packages that attune uses."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def inspect_torch() -> TorchBuild:
    """Find out about torch and the devices of this machine."""
    import torch

    message, usable = "", []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            usable = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
            if (torch.version.cuda or torch.version.hip) and not usable:
                torch.cuda.init()  # type: ignore[no-untyped-call]
        except (RuntimeError, AssertionError) as error:
            message = str(error).splitlines()[0]
    message = message or "; ".join(str(each.message).splitlines()[0] for each in caught)
    return TorchBuild(
        torch.__version__,
        torch.version.cuda,
        torch.version.hip,
        tuple(usable),
        message,
        has_nvidia=any(Path("/dev").glob("nvidia[0-9]*")) or _nvidia_driver() is not None,
        has_amd=Path("/dev/kfd").exists(),
        driver=_nvidia_driver(),
    )


def diagnose_torch(torch: TorchBuild) -> DoctorFinding:
    """Whether this torch can use this machine's devices, and what to do if not."""
    what = f"{torch.version}, {build_of(torch.cuda, torch.hip)}"
    if torch.usable:
        return DoctorFinding("torch", f"{what}; devices: {', '.join(torch.usable)}")
    if torch.has_nvidia and torch.hip:
        remedy = "This machine has an NVIDIA GPU, but torch is built for ROCm. Install a CUDA build of torch."
    elif torch.has_nvidia and not torch.cuda:
        remedy = "This machine has an NVIDIA GPU, but torch is built for the CPU. Install a CUDA build of torch."
    elif torch.has_amd and not torch.hip:
        remedy = "This machine has an AMD GPU, but torch cannot use it. Install a ROCm build of torch."
    elif torch.has_nvidia and "too old" in torch.error:
        remedy = (
            f"The driver {torch.driver} is too old for CUDA {torch.cuda}. Install a newer driver, or an older torch."
        )
    elif torch.has_nvidia:
        remedy = f"torch cannot use the NVIDIA GPU: {torch.error or 'unknown error'}. Run nvidia-smi."
    else:
        return DoctorFinding("torch", f"{what}; no GPU on this machine")
    return DoctorFinding("torch", what, "bad", remedy)


def unused_gpu(torch: TorchBuild) -> str | None:
    """Why torch cannot use a GPU of this machine; None where it can, or where there is none, or it is hidden."""
    finding = diagnose_torch(torch)
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return finding.remedy if finding.verdict == "bad" and not is_hidden else None


def check_bitsandbytes() -> Iterator[DoctorFinding]:
    """Whether bitsandbytes, where it is installed, can take a step on this machine's device."""
    if importlib.util.find_spec("bitsandbytes") is None:
        return
    try:
        done = subprocess.run(
            [sys.executable, "-c", EIGHT_BIT_STEP], capture_output=True, text=True, timeout=TEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        reason = f"an 8-bit AdamW step timed out after {TEST_SECONDS} s"
    else:
        if done.returncode == 0:
            yield DoctorFinding("bitsandbytes", f"an 8-bit AdamW step works on {done.stdout.strip()}")
            return
        reason = (done.stderr.strip().splitlines() or [f"exited with code {done.returncode}"])[-1]
    remedy = 'Reinstall it: pip install --force-reinstall "attune-speech[bnb]"; or use optimizer.name=adamw8bit.'
    yield DoctorFinding("bitsandbytes", reason, "note", remedy)


def _nvidia_driver() -> str | None:
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(answer.stdout.split()), None) if answer.returncode == 0 else None


def _check_collectives() -> Iterator[DoctorFinding]:
    import torch

    devices = torch.cuda.device_count() if torch.version.cuda else 0
    for backend, ranks in [("gloo", 2), *([("nccl", min(devices, 2))] if devices else [])]:
        problem = _all_reduce(backend, ranks)
        remedy = (
            "Ranks cannot communicate on this machine. Check firewalls and the loopback interface; set NCCL_DEBUG=INFO."
        )
        what = f"all-reduce over {ranks} ranks works"
        yield DoctorFinding(backend, problem or what, "bad" if problem else "good", remedy if problem else "")


def _all_reduce(backend: str, ranks: int) -> str | None:
    """The error of an all-reduce over ranks of this machine, or None."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", ALL_REDUCE, backend, f"{folder}/meeting"]
        started = [
            subprocess.Popen([*words, str(rank), str(ranks)], stderr=subprocess.PIPE, text=True)
            for rank in range(ranks)
        ]
        try:
            for process in started:
                stderr = process.communicate(timeout=TEST_SECONDS)[1]
                if process.returncode:
                    return (stderr.strip().splitlines() or ["all-reduce returned a wrong sum"])[-1]
        except subprocess.TimeoutExpired:
            return f"all-reduce timed out after {TEST_SECONDS} s"
        finally:
            for process in started:
                process.kill()
                process.wait()
    return None


def check_audio() -> Iterator[DoctorFinding]:
    """Whether the usual audio formats can be decoded."""
    tone = np.sin(np.arange(SAMPLE_RATE) * 0.2).astype(np.float32) * 0.5
    with tempfile.TemporaryDirectory() as folder:
        for name, (container, coding) in FORMATS.items():
            path = Path(folder) / f"tone.{name}"
            try:
                soundfile.write(path, tone, SAMPLE_RATE, format=container, subtype=coding)
                yield _decoded(name, path)
            except (soundfile.SoundFileError, ValueError) as error:
                remedy = "libsndfile is too old. Run: pip install --upgrade soundfile"
                yield DoctorFinding(name, f"cannot be encoded: {error}", "bad", remedy)
        if importlib.util.find_spec("av"):
            yield _m4a(Path(folder) / "tone.m4a", tone)


def _m4a(path: Path, tone: np.ndarray) -> DoctorFinding:
    try:
        _write_m4a(path, tone)
    except (AttributeError, ImportError, OSError, ValueError) as error:
        return DoctorFinding(
            "m4a", f"PyAV is installed but broken: {error}", "note", "Run: pip install --force-reinstall av"
        )
    return _decoded("m4a", path, "av")


def _decoded(name: str, path: Path, package: str = "soundfile") -> DoctorFinding:
    try:
        seconds = len(read_audio(path)) / SAMPLE_RATE
    except DataError as error:
        return DoctorFinding(name, str(error), "bad", f"Run: pip install --force-reinstall {package}")
    return DoctorFinding(name, f"decodes ({seconds:.2f} s of 1 s)", "good" if abs(seconds - 1) < 0.15 else "bad")


def _write_m4a(path: Path, tone: np.ndarray) -> None:
    import av

    with av.open(str(path), "w") as file:
        stream = file.add_stream("aac", rate=SAMPLE_RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone[None], format="fltp", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            file.mux(packet)


def check_storage(site: Site) -> Iterator[DoctorFinding]:
    """Disk space for downloads, and shared memory for loader workers."""
    folder = site.cache.folder
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    is_writable = os.access(folder, os.W_OK)
    what = f"{site.cache.folder}: {free / 2**30:.0f} GiB free" + ("" if is_writable else ", not writable")
    if not is_writable:
        yield DoctorFinding("cache", what, "bad", "Set ATTUNE_CACHE to a writable folder.")
    else:
        low = "Downloads may fill the disk. Set ATTUNE_CACHE to a folder with more space."
        yield DoctorFinding("cache", what, "note" if free < LOW_DISK else "good", low if free < LOW_DISK else "")
    shared = Path("/dev/shm")  # through which loader workers pass batches
    if shared.exists():
        size = shutil.disk_usage(shared).total
        small = "Loader workers are slower without it. In a container: docker run --shm-size 8g …"
        is_small = size < LOW_SHARED_MEMORY
        what = f"{size / 2**30:.1f} GiB"
        yield DoctorFinding("shared memory", what, "note" if is_small else "good", small if is_small else "")


def check_orphans() -> Iterator[DoctorFinding]:
    """Orphaned ranks and loader workers, whose launcher has exited; there should never be any."""
    runs: dict[str, list[RunProcess]] = {}
    for found in find_run_processes():
        if found.run != os.environ.get(RUN_ID_VARIABLE):  # not this one itself
            runs.setdefault(found.run, []).append(found)
    for run, processes in sorted(runs.items()):
        own = {process.pid for process in processes}
        roots = {process.parent for process in processes} - own
        pids = ", ".join(str(process.pid) for process in sorted(processes, key=lambda process: process.pid))
        if any("attune" in _command(root) for root in roots):
            yield DoctorFinding("processes", f"run {run} is running: {pids}")
        else:
            remedy = f"Their launcher has exited. Kill them: attune doctor --end {run}"
            yield DoctorFinding("processes", f"run {run} is orphaned: {pids} ({processes[0].command})", "bad", remedy)


def end_run(run: str) -> list[int]:
    """Kill every process of a launch; returns their process ids."""
    ended = []
    for found in find_run_processes(run):
        os.kill(found.pid, signal.SIGKILL)
        ended.append(found.pid)
    return ended


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
