"""Whether rows that `attune align --cut` makes of long recordings train as well as the utterances that were joined.

    python benchmarks/cut_rows.py AN4_FOLDER WORK_FOLDER [--seeds 6]

Every third speaker of train trains the aligner, from the packaged demo model; the utterances of all others are joined
to recordings of six minutes in random order, which the aligner cuts. The same recipe is then trained from the demo
model on the original utterances and on the cut rows, with the same seeds and as many seconds of audio a step; the WER
is that of the last step on the ten speakers of dev, of whom nothing was trained on. Running it again goes on with what
is there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import attune
from attune.catalog import NORMALIZERS, find
from attune.cli import main as command
from attune.report.predictions import read_predictions
from attune.scoring.error_rates import word_errors
from attune.scoring.significance import paired_bootstrap
from attune.scoring.texts import texts_of

from alignment import read, recordings, write

RECIPE = """\
run: {work}/{name}
seed: {seed}
data: {{train: [{work}/{rows}], dev: [{work}/dev.jsonl]}}
task: {{name: transcribe, tokens: characters, normalizer: basic, head: {{layers: 2, width: 160, dropout: 0.2}}}}
model: {{family: ssl, upstream: fbank, weights: "attune://demo/model"}}
augment: {{speeds: [0.9, 1.0, 1.1], masks: {{time_masks: 2, frequency_masks: 2, frequency_bins: 40}}}}
batches: {{micro_seconds: 45, micros_per_step: 1}}
optimizer: {{name: adamw, lr: 3e-3, weight_decay: 0.01}}
train: {{steps: 240, warmup: 10, schedule: cosine, eval_every: 240, save_every: 240, keep_best: dev.wer}}
decode: {{search: greedy}}
"""
CUT, PAUSE = "8", "0.3"  # seconds: about as many rows as there were utterances
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}  # of so many differences


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a manifest."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def split(data: Path, work: Path) -> None:
    """The speakers of the aligner, all others, and dev."""
    rows, dev = rows_of(data / "train.jsonl"), rows_of(data / "dev.jsonl")
    for row in (*rows, *dev):
        row["audio"] = str((data / row["audio"]).resolve())
    own = set(sorted({row["speaker"] for row in rows})[::3])
    parts = {
        "aligner": [row for row in rows if row["speaker"] in own],
        "originals": [row for row in rows if row["speaker"] not in own],
        "dev": dev,
    }
    for name, part in parts.items():
        (work / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


def train(work: Path, name: str, rows: str, seed: int) -> Path:
    """The predictions of dev of a run; what is there is not trained again."""
    recipe = work / f"{name}.yaml"
    recipe.write_text(RECIPE.format(work=work, name=name, rows=rows, seed=seed))
    predictions = work / name / "predictions" / "dev.jsonl"
    if not predictions.is_file():
        attune.train(recipe, show=False)
        command(["evaluate", str(work / name), "--on", "dev"])
    return predictions


def cut(work: Path) -> None:
    """Join the utterances to long recordings, and cut those into rows."""
    write(recordings(read(work / "originals.jsonl", 3), 360), work / "long")
    words = [
        "align",
        work / "aligner",
        work / "long/joined.jsonl",
        "--to",
        work / "cut",
        "--cut",
        CUT,
        "--pause",
        PAUSE,
    ]
    command([str(word) for word in words])


def main() -> None:
    """Train all, and print the difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seeds", type=int, default=6)
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    split(arguments.data, work)
    train(work, "aligner", "aligner.jsonl", 7)
    if not (work / "cut" / "rows.jsonl").is_file():
        cut(work)
    for name in ("originals.jsonl", "cut/rows.jsonl"):
        seconds = [row["seconds"] for row in rows_of(work / name)]
        print(f"{name}: {len(seconds)} rows, {np.mean(seconds):.2f} s on average, {sum(seconds) / 3600:.3f} h")
    errors: list[list[Any]] = [[], []]
    for seed in range(1, arguments.seeds + 1):
        for place, (name, rows) in enumerate((("originals", "originals.jsonl"), ("rows", "cut/rows.jsonl"))):
            found = read_predictions(train(work, f"{name}-{seed}", rows, seed))
            own, sizes = word_errors(*texts_of(found), find(NORMALIZERS, "basic"))
            errors[place].append(own)
        report(errors, sizes)


def report(errors: list[list[Any]], sizes: Any) -> None:
    """Both rates over all seeds so far, and their difference: by seed, and by utterance over the sum of seeds."""
    rates = 100 * np.array([[own.sum() for own in side] for side in errors]) / sizes.sum()  # (2, seeds)
    gaps = rates[1] - rates[0]
    seeds = len(gaps)
    for name, own in zip(("originals", "cut rows"), rates, strict=True):
        print(f"{seeds} seeds, {name}: {own.mean():.2f} % {own.round(1)}")
    if seeds > 1:
        half = T_95[seeds] * gaps.std(ddof=1) / np.sqrt(seeds)
        print(f"  by seed {gaps.mean():+.2f} [{gaps.mean() - half:+.2f}, {gaps.mean() + half:+.2f}]")
    found = paired_bootstrap(sum(errors[0]), sum(errors[1]), seeds * sizes)
    print(f"  by utterance {found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}], p {found.p:.3f}", flush=True)


if __name__ == "__main__":
    main()
