"""All GPU benchmarks, the most important first: each in a process of its own, with a time limit of its own.

    python benchmarks/gpu.py --to FOLDER --whisper TINY_EN --an4 AN4 [--minutes 9.5] [--only upstreams,beams] [--plan]

Works from a checkout without installation or network. FOLDER gets each one's output (NAME.log, and its files in NAME/),
state.json and summary.md. Run again with the same folder, it goes on with what is missing or was cut off, then with
what failed: within `--minutes`, nothing is begun that is expected to take longer than what is left. TINY_EN is a
folder of transformers, or one whose weights are int8 rows with a scale each (model.int8.safetensors).
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "triton", "transformers", "torchaudio", "peft", "numpy")
MEMORY = Path("/dev/shm")  # files there are read as fast as memory
ENOUGH = 16 * 2**30  # bytes free for weights and clips
LINES, CHARACTERS = 60, 8000  # of each output, at its end, in the summary
LEAST = 45  # seconds: less is not worth a start
GRACE = 10  # seconds before its limit in which a benchmark that can be cut into parts ends by itself


@dataclass(frozen=True)
class Benchmark:
    """A script with its arguments, and how long it takes on one H200; `{…}` is filled in."""

    name: str
    command: str
    expected: int  # seconds
    limit: int
    what: str
    has_parts: bool = False  # it uses any time that is left, and goes on in the next call
    tiny: str = " --tiny"


WHISPER = "benchmarks/whisper_gpu.py {whisper} {an4} {out} --scratch {scratch}/work --parts "
MATRIX = "benchmarks/gpu_matrix.py {out} --at-once {at_once} --seconds {seconds}"
EVERY = (
    Benchmark("whisper-train", WHISPER + "an4,peer", 130, 300, "Whisper on AN4 beside Seq2SeqTrainer"),
    Benchmark("upstreams", "benchmarks/upstreams.py {out}", 80, 240, "frozen HuBERT beside a plain loop", False,
              " --size tiny --clips 8 --batch 4 --workers 0"),
    Benchmark("beams", "benchmarks/beams.py {out}", 120, 300, "beam 16 over batches and one at a time"),
    Benchmark("beams-real", "benchmarks/beams.py {out} --parts real --whisper {whisper} --an4 {an4}", 30, 120,
              "beam 16 of a published Whisper over a batch and one at a time"),
    Benchmark("whisper-speed", WHISPER + "speed", 210, 420, "training at Whisper small's shapes"),
    Benchmark("whisper-greedy", WHISPER + "greedy", 60, 200, "greedy decoding at Whisper small's shapes"),
    Benchmark("transducer-loss", "benchmarks/transducer_loss.py {out}", 60, 200, "joint and loss beside torchaudio"),
    Benchmark("transducer-batch", "benchmarks/transducer_batch.py {out}", 100, 280, "ContextNet large, largest batch"),
    Benchmark("transducer-decode", "benchmarks/transducer_decode.py {out}", 110, 280, "greedy transducer, RTFx"),
    Benchmark("whisper-large", "benchmarks/whisper_large.py {out} --scratch {scratch}/work", 200, 420,
              "Whisper large's shapes: memory at batch 8 and 32, beside transformers and peft"),
    Benchmark("gpu-tests", "-m pytest -m gpu -o addopts= -o filterwarnings= --continue-on-collection-errors "
              "-p no:cacheprovider {gpu_tests}", 150, 420, "the tests that need a GPU", False, " --collect-only"),
    Benchmark("device-checks", "-m pytest tests/device_checks.py -o addopts= -o filterwarnings= -p no:cacheprovider",
              120, 300, "every family and task learns and finds what it does on the CPU", False, " --collect-only"),
    Benchmark("whisper-exact", WHISPER + "exact", 60, 200, "the same tokens as `generate`, the same bits twice"),
    Benchmark("gpu-matrix", MATRIX, 500, 1800, "every family with every option", True, " --only nothing"),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a benchmark ended, and with what."""

    code: int | None  # None: cut off
    seconds: float
    commit: str
    device: str
    versions: str

    @property
    def shown(self) -> str:
        """In words."""
        if self.code is None or self.code == os.EX_TEMPFAIL:
            return "cut off"
        return "done" if self.code == 0 else f"exit code {self.code}"


class Folder:
    """Where outputs go, and what is there already."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        if (path / "state.json").exists():
            stored = json.loads((path / "state.json").read_text())
            self.outcomes = {name: Outcome(**each) for name, each in stored.items()}

    def missing(self, chosen: Sequence[Benchmark]) -> list[Benchmark]:
        """What is to be run: those that never ended before those that failed, which may fail again."""
        left = [each for each in chosen if self.shown(each) != "done"]
        return sorted(left, key=lambda each: self.shown(each).startswith("exit code"))

    def shown(self, benchmark: Benchmark) -> str:
        """How one ended."""
        found = self.outcomes.get(benchmark.name)
        return found.shown if found else "missing"

    def note(self, benchmark: Benchmark, outcome: Outcome) -> None:
        """Write the state and the summary."""
        self.outcomes[benchmark.name] = outcome
        state = {name: asdict(each) for name, each in self.outcomes.items()}
        for name, text in (("state.json", json.dumps(state, indent=1)), ("summary.md", self.summary())):
            (self.path / f"{name}.new").write_text(text)
            (self.path / f"{name}.new").replace(self.path / name)

    def summary(self) -> str:
        """All outcomes as a table, then the end of each output."""
        lines = ["# GPU benchmarks", "", "| benchmark | what | outcome | seconds | commit | device | versions |"]
        lines += ["|---" * 7 + "|"]
        there = [each for each in EVERY if each.name in self.outcomes]
        for each in there:
            found = self.outcomes[each.name]
            cells = (each.name, each.what, found.shown, f"{found.seconds:.0f}", found.commit, found.device)
            lines.append("| " + " | ".join((*cells, found.versions)) + " |")
        for each in there:
            output = (self.path / f"{each.name}.log").read_text(errors="replace").splitlines()
            lines += ["", f"## {each.name}", "", "```", "\n".join(output[-LINES:])[-CHARACTERS:], "```"]
        return "\n".join(lines) + "\n"


def plan(folder: Folder, chosen: Sequence[Benchmark], minutes: float) -> Iterator[str]:
    """What would be run, in which call, and how long all of it takes."""
    yield f"{'benchmark':<18} {'expected':>8} {'limit':>6}  {'call':>4}  outcome so far"
    left, call, total = 60 * minutes, 1, 0.0
    waiting = folder.missing(chosen)
    calls: dict[str, int] = {}
    while waiting:
        fits = next((each for each in waiting if each.has_parts or each.expected <= left), None)
        if fits is None or left < LEAST:
            if left == 60 * minutes:
                fits = waiting[0]  # longer than any call: said as it is
            else:
                left, call = 60 * minutes, call + 1
                continue
        calls[fits.name], total = call, total + fits.expected
        left -= min(left, fits.expected)
        waiting.remove(fits)
    for each in chosen:
        when = calls.get(each.name, "")
        yield f"{each.name:<18} {each.expected:>6} s {each.limit:>4} s  {when:>4}  {folder.shown(each)}: {each.what}"
    yield f"{total / 60:.0f} minutes, {call} calls of {minutes:g} minutes"


def run_all(folder: Folder, chosen: Sequence[Benchmark], given: argparse.Namespace) -> int:
    """Run what is missing, in its order, as long as there is time; the number that is still missing."""
    end = time.monotonic() + 60 * given.minutes
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    for benchmark in folder.missing(chosen):
        left = end - time.monotonic()
        if left < LEAST or not (benchmark.has_parts or benchmark.expected <= left):
            print(f"{benchmark.name}: left for another call", flush=True)
            continue
        limit = min(benchmark.limit, left)
        print(f"{benchmark.name}: about {benchmark.expected} s, at most {limit:.0f} s", flush=True)
        start = time.monotonic()
        code = run(benchmark, folder.path, limit, given)
        outcome = Outcome(code, time.monotonic() - start, given.commit or commit(), device(), versions)
        folder.note(benchmark, outcome)
        print(f"{benchmark.name}: {outcome.shown} after {outcome.seconds:.0f} s", flush=True)
    missing = folder.missing(chosen)
    print(f"{len(chosen) - len(missing)} of {len(chosen)} done; {folder.path / 'summary.md'}")
    return len(missing)


def run(benchmark: Benchmark, folder: Path, limit: float, given: argparse.Namespace) -> int | None:
    """One benchmark until its end; what it left in memory and in files is gone then. None: it was cut off."""
    parent = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH else None
    with tempfile.TemporaryDirectory(
        prefix=f"attune-{benchmark.name}-", dir=parent, ignore_cleanup_errors=True
    ) as name:
        whisper = given.whisper
        if whisper and (whisper / "model.int8.safetensors").exists():
            whisper = unpacked(whisper, Path(name) / "whisper")
        values = {
            "out": folder / benchmark.name,
            "scratch": name,
            "whisper": whisper,
            "an4": given.an4,
            "seconds": max(0, int(limit) - GRACE),
            "at_once": max(1, len(os.sched_getaffinity(0)) - 2),
            "gpu_tests": " ".join(map(str, gpu_tests())),
        }
        command = benchmark.command.format(**values) + (benchmark.tiny if given.tiny else "")
        paths = (str(ROOT / "src"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", ""))
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1", "TMPDIR": name,
            "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
        }  # fmt: skip
        with (folder / f"{benchmark.name}.log").open("w") as log:
            return watched([sys.executable, *command.split()], log.fileno(), environment, limit)


def watched(command: Sequence[str], log: int, environment: dict[str, str], limit: float) -> int | None:
    """The exit code of a process; at the limit it is killed with all that it started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def unpacked(packed: Path, target: Path) -> Path:
    """A folder of transformers from one whose matrices are int8 rows with a scale each."""
    from safetensors.torch import load_file, save_file

    stored = load_file(packed / "model.int8.safetensors")
    tensors = {name: each for name, each in stored.items() if not name.endswith((".rows", ".scale"))}
    for name in [name.removesuffix(".rows") for name in stored if name.endswith(".rows")]:
        rows = stored[f"{name}.rows"].float()
        scale = stored[f"{name}.scale"].reshape(-1, *[1] * (rows.ndim - 1))
        tensors[name] = (rows * scale).half().contiguous()
    target.mkdir()
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    for file in packed.glob("*.json"):
        shutil.copy(file, target)
    return target


def gpu_tests() -> list[Path]:
    """The files that have tests for a GPU: others may need packages that are not there."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [file.relative_to(ROOT) for file in files if "@pytest.mark.gpu" in file.read_text()]


def commit() -> str:
    """Of the checkout, marked where files were changed."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=8"], cwd=ROOT, capture_output=True, text=True
        )
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


def device() -> str:
    """The GPU and its driver."""
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "no GPU"
    return "; ".join(found.stdout.split("\n")).strip("; ") or "no GPU"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def chosen_from(names: Sequence[str], given: argparse.Namespace) -> list[Benchmark]:
    """The benchmarks of these names, in their order; those whose data were not given are left out with a line."""
    known = [each.name for each in EVERY]
    if wrong := [name for name in names if name not in known]:
        raise SystemExit(f"--only {wrong[0]}: there is no such benchmark. Known: {', '.join(known)}.")
    chosen = []
    for each in EVERY:
        if names and each.name not in names:
            continue
        if "{whisper}" in each.command and not (given.whisper and given.an4):
            print(f"{each.name}: left out; give --whisper and --an4")
            continue
        chosen.append(each)
    return chosen


def main() -> int:
    """Plan or run; exit 75 while something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--whisper", type=Path, help="Whisper tiny.en")
    parser.add_argument("--an4", type=Path, help="a folder with train.jsonl, dev.jsonl and their audio")
    parser.add_argument("--minutes", type=float, default=9.5, help="of this call")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], metavar="NAME,…")
    parser.add_argument("--plan", action="store_true", help="show what would be run")
    parser.add_argument("--commit", help="where there is no git")
    parser.add_argument("--tiny", action="store_true", help="as small as can be, on any device")
    given = parser.parse_args()
    folder = Folder(given.to.absolute())
    given.whisper, given.an4 = (each and each.absolute() for each in (given.whisper, given.an4))
    chosen = chosen_from(given.only, given)
    if given.tiny:
        chosen = [replace(each, expected=LEAST) for each in chosen]
    if given.plan:
        print("\n".join(plan(folder, chosen, given.minutes)))
        return 0
    folder.path.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs is ended first
    return os.EX_TEMPFAIL if run_all(folder, chosen, given) else 0


if __name__ == "__main__":
    sys.exit(main())
