"""A run as it is now, read from its folder while another process trains it."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attune.errors import AttuneError, DataError
from attune.metrics import Json
from attune.report.curves import curves_of
from attune.run import Run

RECENT = 20  # lines of the log that a rate is taken from
SILENT_SECONDS = 600.0

Stamp = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """Where a run is: its state, how far it is, its last figures, its curves and its last examples."""

    name: str
    folder: Path
    state: str
    message: str = ""
    step: int = 0
    steps: int | None = None
    eta_seconds: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    best: str = ""
    updated: float = 0.0  # when something was last logged
    curves: Sequence[Any] = ()
    samples: Sequence[Mapping[str, str]] = ()
    samples_step: int | None = None
    has_report: bool = False

    def as_json(self) -> dict[str, Json]:
        """The same as plain data."""
        return {
            **{name: getattr(self, name) for name in ("name", "state", "message", "step", "steps", "best", "updated")},
            "folder": str(self.folder),
            "eta_seconds": None if self.eta_seconds is None else round(self.eta_seconds),
            "figures": dict(self.figures),
            "curves": list(self.curves),
            "samples": [dict(each) for each in self.samples],
            "samples_step": self.samples_step,
            "report": self.has_report,
        }


def find_runs(folder: Path) -> list[Run]:
    """The run that a folder is, or the runs in it and one level below, the newest first."""
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist. Give a run, or a folder of runs.")
    if is_run(folder):
        return [Run(folder)]
    below = _folders(folder)
    found = [path for path in [*below, *(each for path in below for each in _folders(path))] if is_run(path)]
    return [Run(path) for path in sorted(found, key=_changed, reverse=True)]


def named_runs(folder: Path) -> dict[str, Run]:
    """The runs of a folder by the name that they have below it."""
    return {
        str(run.folder.relative_to(folder)) if run.folder != folder else folder.absolute().name: run
        for run in find_runs(folder)
    }


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder; none of one that is removed meanwhile or that nobody may look into."""
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []


def is_run(folder: Path) -> bool:
    """Whether a folder has been trained in."""
    return (folder / "recipe.yaml").is_file() and (folder / "status.json").is_file()


def view_run(run: Run, name: str | None = None, now: float | None = None) -> RunView:
    """Read the state of a run; a log that is being written, or is not there yet, is no error."""
    lines = list(run.log_lines())
    stepped = [line for line in lines if line.get("event") == "step" and isinstance(line.get("step"), int)]
    status, best = run.status(), run.best()
    steps = _steps(run, lines)
    samples: Mapping[str, Any] = next((line for line in reversed(lines) if line.get("event") == "samples"), {})
    last = stepped[-1] if stepped else {}
    shown = ("loss", "lr", "gradient_norm", "audio_seconds_per_second", "memory_gib")
    updated = max([float(line.get("time", 0.0)) for line in lines[-1:]] + [status.time if status else 0.0])
    state = status.state if status else "not started"
    silent = (time.time() if now is None else now) - updated
    return RunView(
        name=name or run.folder.name or str(run.folder),
        folder=run.folder,
        state=state if state != "running" or silent < SILENT_SECONDS else f"running, silent for {silent / 60:.0f} min",
        message=status.message if status else "",
        step=last.get("step", 0),
        steps=steps,
        eta_seconds=_eta(stepped, steps) if state == "running" and silent < SILENT_SECONDS else None,
        figures={each: last[each] for each in shown if isinstance(last.get(each), int | float)},
        best=f"{best.metric} {best.value:.2f} at step {best.step}" if best else "",
        updated=updated,
        curves=curves_of(run.history()),
        samples=samples.get("samples", ()),
        samples_step=samples.get("step"),
        has_report=(run.folder / "report.html").is_file(),
    )


def _steps(run: Run, lines: Sequence[Mapping[str, Any]]) -> int | None:
    """How many there are to take: as logged when training started, or as the recipe has them."""
    started = next((line["steps"] for line in reversed(lines) if line.get("event") == "started"), None)
    if started is None:
        try:
            return run.recipe().train.steps
        except (AttuneError, OSError):
            return None
    return int(started)


def _eta(stepped: Sequence[Mapping[str, Any]], steps: int | None) -> float | None:
    recent = stepped[-RECENT:]
    if steps is None or len(recent) < 2:
        return None
    first, last = recent[0], recent[-1]
    taken, seconds = last["step"] - first["step"], last["time"] - first["time"]
    return max(0.0, (steps - last["step"]) * seconds / taken) if taken > 0 and seconds > 0 else None


def run_stamp(run: Run) -> Stamp:
    """When each file that a view is made of was last written, and how long it is."""
    names = ("log.jsonl", "status.json", "best.json", "recipe.yaml", "report.html")
    return tuple(_stamp(run.folder / name) for name in names)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _changed(folder: Path) -> float:
    """When it was last written to; it may be removed meanwhile."""
    found = 0.0
    for name in ("log.jsonl", "status.json"):
        with suppress(OSError):
            found = max(found, (folder / name).stat().st_mtime)
    return found
