"""The report of runs: one page with what was trained, how good it is, and every utterance to look at."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attune.metrics import Json
from attune.report.curves import curves_of
from attune.report.page import Page, make_page
from attune.report.sets import ScoredSet, set_data
from attune.secrets import without_secrets

TEXTS = ("recipe", "command")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a page shows of a run beside its predictions."""

    name: str
    folder: str  # where the page is read from, as recordings are linked relative to it
    state: str
    task: str
    model: str
    best: str
    recipe: str
    command: str
    environment: Mapping[str, Any]
    sources: Sequence[Mapping[str, Any]]
    history: Sequence[Mapping[str, Any]]
    sets: Sequence[ScoredSet]
    notes: Sequence[str] = field(default_factory=tuple)


def report_page(runs: Sequence[RunFacts]) -> Page:
    """A page of one run or several."""
    title = ", ".join(run.name for run in runs)
    data: Json = {"made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "runs": [_run_data(run) for run in runs]}
    return make_page(f"{title} · attune report", "report.js", data)


def _run_data(run: RunFacts) -> dict[str, Json]:
    return {
        "name": run.name,
        "folder": run.folder,
        "state": run.state,
        "task": run.task,
        "model": run.model,
        "best": run.best,
        "curves": curves_of(run.history),
        "sets": [set_data(each) for each in run.sets],
        "recipe": without_secrets(run.recipe),
        "command": without_secrets(run.command),
        "environment": dict(run.environment),
        "sources": [dict(each) for each in run.sources],
        "notes": list(run.notes),
    }
