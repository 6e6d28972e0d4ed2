"""Start-up on a manifest of millions of rows: the first scan, then 1 … N ranks that open its index and plan an epoch.

    python benchmarks/startup.py --rows 5000000 --ranks 1 4

Each rank is a process of its own, as under torchrun. Printed are seconds of wall clock and of CPU, and memory beyond
that of the imports: what a rank has for itself, its share of all (PSS), and the peak with all shared pages counted
(RSS).
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECORDINGS = 2000
WORDS = ["the", "of", "speech", "model", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "reading", "morning"]


def main() -> None:
    """Write a manifest, scan it, and open it from several ranks at once."""
    arguments = _parser().parse_args()
    if arguments.opens:
        _open(arguments.opens, arguments.index)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        manifest = _write(folder, arguments.rows)
        print(f"manifest: {arguments.rows:,} rows, {manifest.stat().st_size / 1e6:.0f} MB")
        for ranks in (1, *arguments.ranks):
            _start(manifest, folder / "index", ranks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure start-up on a large manifest.")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--folder", type=Path, help="keep the manifest here")
    parser.add_argument("--opens", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--index", type=Path, help=argparse.SUPPRESS)
    return parser


def _write(folder: Path, rows: int) -> Path:
    """Segments of recordings, as a long-form corpus has them."""
    manifest, draw = folder / f"{rows}.jsonl", random.Random(1)
    if manifest.exists():
        return manifest
    (folder / "audio").mkdir(parents=True, exist_ok=True)
    for number in range(RECORDINGS):
        (folder / f"audio/{number:05d}.flac").write_bytes(b"x")
    with manifest.open("w") as file:
        for row in range(rows):
            fields: dict[str, object] = {"id": f"corpus-{row:08d}", "audio": f"audio/{row % RECORDINGS:05d}.flac"}
            fields |= {"start": row // RECORDINGS * 7.5, "seconds": round(1 + 14 * draw.random(), 3)}
            fields |= {"text": " ".join(draw.choices(WORDS, k=10)), "speaker": f"s{row % 997}"}
            file.write(json.dumps(fields) + "\n")
    return manifest


def _start(manifest: Path, index: Path, ranks: int) -> None:
    kind = "open" if index.exists() else "scan"
    command = [sys.executable, __file__, "--opens", str(manifest), "--index", str(index)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(ranks)]
    for rank, process in enumerate(processes):
        print(f"{kind}, {ranks} ranks, rank {rank}: {process.communicate()[0].strip()}", flush=True)


def _open(manifest: Path, index: Path) -> None:
    import torch  # noqa: F401  # every rank has it; its memory is not the manifest's

    from attune.batches.plan import Budget, plan_epoch
    from attune.corpora import open_corpus, select

    before, peak, clock, cpu = _memory(), _peak(), time.perf_counter(), time.process_time()
    corpus = open_corpus("train", [manifest], index)
    opened, opened_cpu = time.perf_counter() - clock, time.process_time() - cpu
    selection = select(corpus, 0.1, 30.0)
    plan = plan_epoch(corpus.seconds, selection.rows, Budget(240.0, None, 8), 1, 0)
    planned_cpu = time.process_time() - cpu - opened_cpu
    corpus[int(plan.order[0])]
    own, share = (now - then for now, then in zip(_memory(), before, strict=True))
    print(
        f"opened in {opened:.2f} s ({opened_cpu:.2f} s CPU), planned in {planned_cpu:.2f} s CPU; "
        f"own {own:.0f} MB, PSS {share:.0f} MB, peak RSS {_peak() - peak:.0f} MB"
    )


def _memory() -> tuple[float, float]:
    """This process's own memory, and with its share of what it has in common with others, in MB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    return (sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1e3, sizes["Pss"] / 1e3


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
