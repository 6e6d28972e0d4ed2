"""How exact and how fast forced alignment is, on utterances joined to long recordings.

    python benchmarks/alignment.py MODEL MANIFEST [--minutes 6]

The utterances of a manifest are joined as they are, in random order. The truth is where the speech of each begins and
ends in the join, found in the utterance alone by two levels (Rabiner and Sambur, 1975): stretches of 50 ms or more
within 15 dB of its loudest 10 ms are speech, and reach outwards as long as the level stays within 30 dB of it, over
closures of up to 100 ms. Right is within 80 ms of the truth: the start of the first word and the end of the last word
of an utterance; the interval resamples utterances. As the outer level is a choice, the share is printed for two others
too, and for the edges on which all three agree within 80 ms: elsewhere, breath and reverberation leave the truth open.
That every word lies between its joins needs no such choice. The clock is the process's CPU time.

Levels alone lose a soft last word and take a click for speech. Where pocketsphinx is installed (`pip install
pocketsphinx`), which has no part in attune, a second truth is that of levels where its HMM finds the first and the last
word in each utterance alone; and the starts of all words are compared with the HMM's.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

import attune
from attune.audio.decode import read_utterance
from attune.audio.vad import Span
from attune.corpora import open_manifest
from attune.metrics import Metric
from attune.scoring import bootstrap
from attune.types import SAMPLE_RATE, Utterance, Word

TOLERANCE = 0.08
LOUD, SOFT = -15.0, -30.0  # dB below the loudest 10 ms
OTHERS = (-25.0, -35.0)  # in place of the soft one
SHORTEST, BRIDGED, CLICK = 5, 10, 3  # hundredths of a second

WITHIN = Metric("within", "%", True, "Edges within 80 ms of the truth.")

Samples = NDArray[np.float32]
Hmm = Callable[[Samples, str], list[Span]]


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


def word_edges(samples: Samples, words: Sequence[Span], softest: float = SOFT) -> tuple[float, float]:
    """The same by where words are known to be: from the first sound of the first to the last sound of the last."""
    hop = SAMPLE_RATE // 100
    power = np.square(samples[: len(samples) // hop * hop].reshape(-1, hop)).mean(1) + 1e-12
    is_loud = 10 * np.log10(power / power.max()) > softest
    for first, last in _runs(is_loud, 0):
        is_loud[first:last] = last - first >= CLICK
    sounds = [Span(start / 100, end / 100) for start, end in _runs(is_loud, BRIDGED)]
    start = next((each.start for each in sounds if each.end > words[0].start), words[0].start)
    return start, next((each.end for each in reversed(sounds) if each.start < words[-1].end), words[-1].end)


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


LOST = Word("", -np.inf, np.inf, 0.0)  # a word that the model does not find


@dataclass
class Errors:
    """Distances in seconds: of each utterance's outer edges from each truth, and of all starts from the HMM's."""

    outer: list[list[float]] = field(default_factory=list)  # starts and ends by turns, for each truth
    by_hmm: list[list[float]] = field(default_factory=list)  # the same where the HMM finds the words
    starts: list[float] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)  # whether each word lies between its joins

    def add(self, group: Sequence[tuple[Utterance, Samples]], words: Sequence[Word], hmm: Hmm | None) -> None:
        """Those of a recording."""
        place, found = 0.0, iter(words)
        for row, samples in group:
            own = [next(found, LOST) for _ in (row.text or "").split()]
            first, last, after = own[0].start - place, own[-1].end - place, place + len(samples) / SAMPLE_RATE
            truths = [speech_edges(samples, level) for level in (SOFT, *OTHERS)]
            self.outer.append([distance for start, end in truths for distance in (first - start, last - end)])
            self.inside += [word.start >= place - TOLERANCE and word.end <= after + TOLERANCE for word in own]
            theirs = hmm(samples, row.text or "") if hmm else []
            if len(theirs) == len(own):  # it gives up on a few
                truths = [word_edges(samples, theirs, level) for level in (SOFT, *OTHERS)]
                self.by_hmm.append([distance for start, end in truths for distance in (first - start, last - end)])
                self.starts += [word.start - place - each.start for word, each in zip(own, theirs, strict=True)]
            place = after


def pocketsphinx_hmm() -> Hmm | None:
    """The words of an utterance by pocketsphinx's forced alignment, if it is installed; its ends have silence."""
    try:
        from pocketsphinx import Decoder
    except ImportError:
        return None
    decoder = Decoder(lm=None, loglevel="FATAL")

    def words(samples: Samples, text: str) -> list[Span]:
        decoder.set_align_text(text.lower())
        decoder.start_utt()
        decoder.process_raw((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes(), full_utt=True)
        decoder.end_utt()
        found = [each for each in decoder.seg() or () if each.word[0] not in "<["]
        return [Span(each.start_frame / 100, (each.end_frame + 1) / 100) for each in found]

    return words


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
    found, hmm = Errors(), pocketsphinx_hmm()
    audio = spent = 0.0
    for group in groups:
        samples = np.concatenate([each for _, each in group])
        began = time.process_time()
        aligned = model.align(samples, " ".join(row.text or "" for row, _ in group))
        spent += time.process_time() - began
        audio += len(samples) / SAMPLE_RATE
        found.add(group, aligned.words, hmm)
    report(found)
    print(f"{len(groups)} recordings of {audio / 60:.1f} minutes in all, {audio / spent:.0f}× real time by CPU time")


def report(found: Errors) -> None:
    """Print the shares."""
    report_edges(np.array(found.outer).round(3))  # both are in hundredths of a second
    print(f"words between their joins: {100 * np.mean(found.inside):.1f} % of {len(found.inside)}")
    if found.starts:
        print("where pocketsphinx finds the words:")
        report_edges(np.array(found.by_hmm).round(3))
        away = np.abs(np.array(found.starts).round(3))
        print(
            f"starts of all words within 80 ms of pocketsphinx's: {100 * (away <= TOLERANCE).mean():.1f} % "
            f"of {len(away)}, median {1000 * np.median(away):.0f} ms"
        )


def report_edges(distances: NDArray[np.float64]) -> None:
    """Print how many are within 80 ms; `distances` are by utterance, of starts and ends by turns for each truth."""
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
    by_truth = distances.reshape(len(distances), -1, 2)
    with np.errstate(invalid="ignore"):  # of words that were not found
        is_certain = np.ptp(by_truth, axis=1).round(3) <= TOLERANCE  # (utterances, 2)
    print(f"  where the levels agree: {100 * right[:, :2][is_certain].mean():.1f} % of {is_certain.sum()}")


if __name__ == "__main__":
    main()
