"""What a training came by: its figures over the steps, in as many points as a screen shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attune.metrics import Json
from attune.report.tables import metric_label

MOST_POINTS = 800
TITLES = {
    "loss": "Training loss",
    "lr": "Learning rate",
    "gradient_norm": "Gradient norm",
    "audio_seconds_per_second": "Speed (× real time)",
    "memory_gib": "Memory (GiB)",
}


def curves_of(history: Sequence[Mapping[str, Any]]) -> list[Json]:
    """A curve for each figure of the log that a person looks at: name, title, steps, values."""
    names = list(dict.fromkeys(name for row in history for name in row))
    shown = [name for name in TITLES if name in names] + [name for name in names if "." in name and ".raw_" not in name]
    return [found for name in shown if (found := _curve(name, history))]


def _curve(name: str, history: Sequence[Mapping[str, Any]]) -> Json:
    points = [(row["step"], row[name]) for row in history if isinstance(row.get(name), int | float)]
    if len(points) < 2:
        return None
    thin = thinned(points)
    return {
        "name": name,
        "title": _title(name),
        "steps": [each[0] for each in thin],
        "values": [each[1] for each in thin],
    }


def _title(name: str) -> str:
    split, _, metric = name.partition(".")
    return TITLES.get(name) or f"{split} {metric_label(metric)}"


def thinned(points: Sequence[tuple[int, float]], most: int = MOST_POINTS) -> list[tuple[int, float]]:
    """The lowest and highest of each stretch, so that no spike is lost; first and last are kept."""
    if len(points) <= most:
        return list(points)
    size = len(points) / (most / 2)
    kept = {0, len(points) - 1}
    for part in range(most // 2):
        rows = range(int(part * size), max(int(part * size) + 1, int((part + 1) * size)))
        kept |= {min(rows, key=lambda row: points[row][1]), max(rows, key=lambda row: points[row][1])}
    return [points[row] for row in sorted(kept)]
