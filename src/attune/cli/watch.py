"""Watch runs in a terminal while they train."""

from __future__ import annotations

import shutil
import sys
import time
from argparse import ArgumentParser, Namespace
from bisect import bisect_right
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from attune.cli._terminal import add_json, print_json, run_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attune.analysis.watch import RunView

HELP = "watch a run, or all runs of a folder, in the terminal"
EXAMPLE = "attune watch runs/demo"
CLEAR = "\x1b[H\x1b[J"
CURVE = 36  # characters
MOST_CURVES = 9


def add_arguments(parser: ArgumentParser) -> None:
    """Take a run or a folder of runs."""
    parser.add_argument(
        "folder",
        nargs="?",
        default="runs",
        metavar="RUN|FOLDER",
        help="run, s3://… too, or folder of runs (default: runs)",
    )
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="how often to look (default 2)")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Redraw until the run ends or Ctrl-C; without a terminal, print once."""
    from attune.analysis.watch import is_run, named_runs, view_run
    from attune.styles import styled

    if arguments.json:
        runs = named_runs(run_folder(arguments.folder))
        print_json([view_run(run, name).as_json() for name, run in runs.items()])
        return 0
    is_live = sys.stdout.isatty()
    while True:
        folder = run_folder(arguments.folder)
        views, is_single = [view_run(run, name) for name, run in named_runs(folder).items()], is_run(folder)
        lines = (_one(views[0]) if is_single else _list(folder, views)).splitlines()
        head, *rest = _fitted(lines) if is_live else lines
        print("\n".join([f"{CLEAR * is_live}{styled(head, 'bold', sys.stdout)}", *rest]), flush=True)
        if not is_live or (is_single and not views[0].state.startswith("running")):
            return 0
        time.sleep(max(0.1, arguments.every))


def _fitted(lines: Sequence[str]) -> list[str]:
    """As much as the terminal has room for: what it would scroll away is the beginning, where the newest is."""
    size = shutil.get_terminal_size()
    most = max(2, size.lines - 1)
    if len(lines) > most:
        left_out = len(lines) - most + 1
        lines = [*lines[: most - 1], f"… {left_out:,} more lines: make the terminal taller"]
    return [_cut(line, size.columns) for line in lines]


def _cut(line: str, columns: int) -> str:
    """The beginning of a line; characters of East Asian scripts are two columns wide."""
    ends = list(accumulate(2 if east_asian_width(each) in "WF" else 1 for each in line))
    return line if not ends or ends[-1] <= columns else line[: bisect_right(ends, columns - 1)] + "…"


def _one(view: RunView) -> str:
    from attune.report.sparks import spark
    from attune.run import Run

    name = Run(view.folder).name
    lines = [f"{name}: {_state(view)}"]
    lines += [f"  {view.message}"] if view.message else []
    lines += [f"  best {view.best}"] if view.best else []
    width = max((len(each["title"]) for each in view.curves[:MOST_CURVES]), default=0)
    for each in view.curves[:MOST_CURVES]:
        first, last = each["values"][0], each["values"][-1]
        lines.append(f"  {each['title']:{width}}  {spark(each['values'], CURVE):{CURVE}}  {first:.4g} → {last:.4g}")
    if view.samples:
        lines.append(f"  examples at step {view.samples_step}:")
    for each in view.samples:
        lines += [f"    {each['id']}", f"      ref  {each['reference']}", f"      hyp  {each['hypothesis']}"]
    if view.has_report:
        lines.append(f"  report: {name}/report.html")
    return "\n".join(lines)


def _list(folder: Path, views: list[RunView]) -> str:
    from attune.report.sparks import spark
    from attune.report.tables import aligned

    if not views:
        return f"{folder}: no runs yet"
    rows = [["run", "state", "loss", "", "best"]]
    for view in views:
        loss: list[float] = next((each["values"] for each in view.curves if each["name"] == "loss"), [])
        last = f"{loss[-1]:.3f}" if loss else ""
        rows.append([view.name, _state(view), last, spark(loss, 16), view.best])
    return aligned(rows)


def _state(view: RunView) -> str:
    of = f" of {view.steps:,}" if view.steps else ""
    parts = [view.state, f"step {view.step:,}{of}" if view.step else ""]
    if view.eta_seconds is not None:
        parts.append(f"ETA {timedelta(seconds=round(view.eta_seconds))}")
    if speed := view.figures.get("audio_seconds_per_second"):
        parts.append(f"{speed:.0f}× real time")
    if memory := view.figures.get("memory_gib"):
        parts.append(f"{memory:.1f} GiB")
    return ", ".join(filter(None, parts))
