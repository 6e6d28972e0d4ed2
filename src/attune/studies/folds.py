"""Cross-validation: every fold is tested once by a model that has learned from the others.

Of the other folds' rows a part, drawn by the recipe's seed, is the dev set. Each fold has a run of its own below the
recipe's, so that the same command continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attune.errors import DataError
from attune.files import parse_json, split_lines, write_text
from attune.metrics import Metric
from attune.recipe import Recipe
from attune.run import Run
from attune.run_store import require_folder
from attune.seeds import derive

DEV_PART = 0.2
AUDIO = ("audio", "audio_filepath", "path", "wav")


@dataclass(frozen=True, slots=True)
class FoldRun:
    """One fold: its run, and the overrides that make the recipe train it."""

    name: str
    run: Path
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """The test score of each fold, and their mean."""

    metric: Metric
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over folds."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """The standard deviation over folds."""
        return float(np.std(self.values))

    def as_json(self) -> dict[str, object]:
        """The scores as plain data."""
        return {"metric": self.metric.name, "mean": self.mean, "deviation": self.deviation, "folds": list(self.values)}


def write_folds(recipe: Recipe, manifests: Sequence[Path], dev_part: float = DEV_PART) -> Iterator[FoldRun]:
    """Write the manifests of each fold, and say how to train it."""
    if len(manifests) < 2:
        raise DataError("Cross-validation needs at least two manifests, one for each fold.")
    folder = require_folder(recipe.run, "run=FOLDER")
    for number, test in enumerate(manifests, start=1):
        run = folder / f"fold-{number}"
        rows = [row for manifest in manifests if manifest != test for row in _rows(manifest)]
        random = np.random.default_rng(derive(recipe.seed, "fold", number))
        chosen = set(random.permutation(len(rows))[: round(dev_part * len(rows))].tolist())
        parts = {name: Path(recipe.run) / "folds" / f"{number}-{name}.jsonl" for name in ("train", "dev")}
        for name, path in parts.items():
            own = [row for place, row in enumerate(rows) if (place in chosen) == (name == "dev")]
            write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in own))
        data = {"train": parts["train"], "dev": parts["dev"], "test": test}
        overrides = [f"data.{name}=[{json.dumps(str(path))}]" for name, path in data.items()]
        yield FoldRun(test.stem, run, (f"run={json.dumps(str(run))}", *overrides))


def collect(recipe: Recipe, metric: Metric, folds: Sequence[FoldRun]) -> CrossValidation:
    """The test scores of all folds; also written to folds.json of the recipe's run."""
    values = tuple(float(Run(fold.run).scores()["test"]["scores"][metric.name]["value"]) for fold in folds)
    found = CrossValidation(metric, values)
    write_text(Path(recipe.run) / "folds.json", json.dumps(found.as_json(), indent=2) + "\n")
    return found


def _rows(manifest: Path) -> Iterator[dict[str, object]]:
    """The rows of a manifest with paths that hold anywhere."""
    try:
        lines = split_lines(manifest.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{manifest} cannot be read: {error.strerror}.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
            places = [row, row.get("signals", {})]
        except (ValueError, AttributeError) as error:
            raise DataError(
                f"{manifest}:{number} is not a JSON object: {error}. A fold is a manifest of JSON lines, as `attune "
                "prepare` writes them."
            ) from error
        for place in places:
            for name, value in place.items() if isinstance(place, dict) else ():
                if isinstance(value, str) and (name in AUDIO or place is not row) and "://" not in value:
                    place[name] = str(manifest.parent.absolute() / value)
        yield row
