"""How exact and how fast forced alignment is, on utterances joined to long recordings.

    python benchmarks/alignment.py MODEL MANIFEST [--minutes 6]

The utterances of a manifest are joined as they are, in random order. The truth is where the speech of each begins and
ends in the join, found in the utterance alone by two levels (Rabiner and Sambur, 1975): stretches of 50 ms or more
within 15 dB of its loudest 10 ms are speech, and reach outwards as long as the level stays within 30 dB of it, over
closures of up to 100 ms. Right is within 80 ms of the truth: the start of the first word and the end of the last word
of an utterance; the interval resamples utterances. As the outer level is a choice, the share is printed for two others
too. That every word lies between its joins needs no such choice. The clock is the process's CPU time.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

import attune
from attune.audio.decode import read_utterance
from attune.corpora import open_manifest
from attune.metrics import Metric
from attune.scoring import bootstrap
from attune.types import SAMPLE_RATE, Utterance, Word

TOLERANCE = 0.08
LOUD, SOFT = -15.0, -30.0  # dB below the loudest 10 ms
OTHERS = (-25.0, -35.0)  # in place of the soft one
SHORTEST, BRIDGED = 5, 10  # hundredths of a second

WITHIN = Metric("within", "%", True, "Edges within 80 ms of the truth.")

Samples = NDArray[np.float32]


def speech_edges(samples: Samples, softest: float = SOFT) -> tuple[float, float]:
    """When the speech of an utterance begins and ends, in seconds."""
    hop = SAMPLE_RATE // 100
    power = np.square(samples[: len(samples) // hop * hop].reshape(-1, hop)).mean(1) + 1e-12
    levels = 10 * np.log10(power / power.max())
    loud = [run for run in _runs(levels > LOUD, 0) if run[1] - run[0] >= SHORTEST]
    soft = _runs(levels > softest, BRIDGED)
    first = next(run for run in soft if run[0] <= loud[0][0] < run[1])
    last = next(run for run in soft if run[0] < loud[-1][1] <= run[1])
    return first[0] / 100, last[1] / 100


def _runs(is_in: NDArray[np.bool_], bridged: int) -> list[list[int]]:
    edges = np.flatnonzero(np.diff(np.pad(is_in, 1).astype(np.int8))).reshape(-1, 2).tolist()
    joined = edges[:1]
    for start, end in edges[1:]:
        if start - joined[-1][1] <= bridged:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    return joined


def read(manifest: Path, seed: int) -> list[tuple[Utterance, Samples]]:
    """The utterances of a manifest in random order, with their audio."""
    with tempfile.TemporaryDirectory() as index:
        rows = list(open_manifest(manifest, Path(index)))
    random.Random(seed).shuffle(rows)
    return [(row, read_utterance(row)) for row in rows]


def recordings(rows: Sequence[tuple[Utterance, Samples]], seconds: float) -> list[list[tuple[Utterance, Samples]]]:
    """The rows in groups of about so many seconds."""
    groups: list[list[tuple[Utterance, Samples]]] = [[]]
    for row in rows:
        if sum(len(samples) for _, samples in groups[-1]) > seconds * SAMPLE_RATE:
            groups.append([])
        groups[-1].append(row)
    return groups


def errors(group: Sequence[tuple[Utterance, Samples]], words: Sequence[Word]) -> tuple[list[list[float]], list[bool]]:
    """Of each utterance, how far its first start and last end are from each truth; whether words lie between joins."""
    place, found, distances, inside = 0.0, iter(words), [], []
    for row, samples in group:
        own = [next(found) for _ in (row.text or "").split()]
        first, last, after = own[0].start - place, own[-1].end - place, place + len(samples) / SAMPLE_RATE
        truths = [speech_edges(samples, level) for level in (SOFT, *OTHERS)]
        distances.append([distance for start, end in truths for distance in (first - start, last - end)])
        inside += [word.start >= place - TOLERANCE and word.end <= after + TOLERANCE for word in own]
        place = after
    return distances, inside


def write(groups: Sequence[Sequence[tuple[Utterance, Samples]]], folder: Path) -> None:
    """The joined recordings and their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, group in enumerate(groups):
        name = f"joined-{number:02d}"
        soundfile.write(folder / f"{name}.flac", np.concatenate([samples for _, samples in group]), SAMPLE_RATE)
        lines.append({"id": name, "audio": f"{name}.flac", "text": " ".join(row.text or "" for row, _ in group)})
    (folder / "joined.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    groups = recordings(read(arguments.manifest, arguments.seed), 60 * arguments.minutes)
    model = attune.load(arguments.model, "cpu")
    distances: list[list[float]] = []
    inside: list[bool] = []
    audio = spent = 0.0
    for group in groups:
        samples = np.concatenate([each for _, each in group])
        began = time.process_time()
        found = model.align(samples, " ".join(row.text or "" for row, _ in group))
        spent += time.process_time() - began
        audio += len(samples) / SAMPLE_RATE
        more, where = errors(group, found.words)
        distances, inside = distances + more, inside + where
    report(np.array(distances), np.array(inside))
    print(f"{len(groups)} recordings of {audio / 60:.1f} minutes in all, {audio / spent:.0f}× real time by CPU time")


def report(distances: NDArray[np.float64], inside: NDArray[np.bool_]) -> None:
    """Print the shares; `distances` are by utterance, of starts and ends by turns for each truth."""
    right = np.abs(distances) <= TOLERANCE
    own = right[:, :2].sum(1)
    score = bootstrap.percent(WITHIN, own.tolist(), [2] * len(own))
    starts, ends = 100 * right[:, :2].mean(0)
    print(f"edges within 80 ms: {score.value:.1f} % [{score.low:.1f}, {score.high:.1f}] of {2 * len(own)}")
    median = 1000 * np.median(np.abs(distances[:, :2]))
    print(f"  starts {starts:.1f} %, ends {ends:.1f} %; median distance {median:.0f} ms")
    others = [100 * right[:, 2 * place : 2 * place + 2].mean() for place in range(1, 1 + len(OTHERS))]
    print(
        "  with the outer level at "
        + ", ".join(f"{level:g} dB: {share:.1f} %" for level, share in zip(OTHERS, others, strict=True))
    )
    print(f"words between their joins: {100 * inside.mean():.1f} % of {len(inside)}")


if __name__ == "__main__":
    main()
