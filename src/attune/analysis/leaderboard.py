"""Evaluate one system on many sets the way the Open ASR Leaderboard does, and score it both ways.

Word error rates are under a named normalizer and, on the same texts, under the leaderboard's scorer, which merges
compounds; the average over sets is unweighted. RTFx is all audio over all time. The clock runs from samples in memory
to text, batch by batch, with features, padding and search; reading files and loading the model are outside, and the
first batch is decoded once before. On an accelerator it stops when the device has finished. A clip's time is its share
of its batch.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attune import files
from attune.audio.decode import read_utterance
from attune.corpora import Corpus, fetch_manifest, open_corpus
from attune.errors import ConfigError, DataError
from attune.files import parse_json
from attune.metrics import Prediction, Score
from attune.report.predictions import write_predictions
from attune.report.tables import with_unit
from attune.scoring.compounds import compound_wer
from attune.scoring.error_rates import score_texts
from attune.site import Site
from attune.types import SAMPLE_RATE, Utterance

IGNORED = "ignore time segment in scoring"  # a reference that the leaderboard leaves out
OTHERS_CLOCK = "as the files have it"
CLOCK = (
    "samples in memory to text: features, padding, search; without reading files and loading the model; first batch "
    "decoded once before"
)

Samples = NDArray[np.float32]
Transcribe = Callable[[Sequence[Samples]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class EvalSet:
    """A set and where its manifest is, or what another system made of it."""

    name: str
    source: str

    @staticmethod
    def of(text: str) -> EvalSet:
        """`NAME=SOURCE`, or a source that is called as its file."""
        name, is_named, source = text.partition("=")
        return EvalSet(name, source) if is_named and "/" not in name else EvalSet(Path(text).stem, text)


@dataclass(frozen=True, slots=True)
class LeaderboardLine:
    """A line of the leaderboard's files: a clip, how long it is, how long it took, what is in it and what was found."""

    audio_filepath: str
    duration: float
    time: float
    text: str
    pred_text: str


@dataclass(frozen=True, slots=True)
class SetResult:
    """The scores of a set, and its speed where a clock ran."""

    name: str
    utterances: int
    wer: Score
    compound_wer: Score
    audio_seconds: float
    seconds: float

    @property
    def rtfx(self) -> float | None:
        """Seconds of audio for a second of decoding."""
        return self.audio_seconds / self.seconds if self.seconds > 0 else None

    def as_json(self) -> dict[str, object]:
        """All of it as plain data."""
        scores = {each.metric.name: [each.value, each.low, each.high] for each in (self.wer, self.compound_wer)}
        more = {"audio_seconds": round(self.audio_seconds, 3), "seconds": round(self.seconds, 3), "rtfx": self.rtfx}
        return {"utterances": self.utterances, **scores, **more}


@dataclass(frozen=True, slots=True)
class LeaderboardResult:
    """The results of a system on all sets."""

    system: str
    normalizer: str
    sets: tuple[SetResult, ...]
    clock: str = CLOCK

    @property
    def average(self) -> float:
        """The unweighted mean of the leaderboard's word error rates."""
        return sum(each.compound_wer.value for each in self.sets) / len(self.sets)

    @property
    def average_wer(self) -> float:
        """The unweighted mean of the plain word error rates."""
        return sum(each.wer.value for each in self.sets) / len(self.sets)

    @property
    def rtfx(self) -> float | None:
        """All audio over all time, of the sets with a clock."""
        clocked = [each for each in self.sets if each.seconds > 0]
        seconds = sum(each.seconds for each in clocked)
        return sum(each.audio_seconds for each in clocked) / seconds if clocked else None

    def as_json(self) -> dict[str, object]:
        """All of it as plain data."""
        average = {"average_compound_wer": self.average, "average_wer": self.average_wer, "rtfx": self.rtfx}
        sets = {each.name: each.as_json() for each in self.sets}
        return {"system": self.system, "normalizer": self.normalizer, "clock": self.clock, **average, "sets": sets}

    def markdown(self) -> str:
        """A row as the leaderboard has it, under its head: WER under the leaderboard's scorer."""
        names = [each.name for each in self.sets]
        rtfx = "–" if self.rtfx is None else f"{self.rtfx:.1f}"
        cells = [self.system, f"{self.average:.2f}", rtfx, *(f"{each.compound_wer.value:.2f}" for each in self.sets)]
        head = ["model", "average WER", "RTFx", *names]
        lines = [head, ["---"] * len(head), cells]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def table(self) -> list[tuple[str, ...]]:
        """A line for each set: name, utterances, both rates with their intervals, RTFx."""
        rows = [
            (each.name, f"{each.utterances:,}", _rate(each.wer), _rate(each.compound_wer), _times(each.rtfx))
            for each in self.sets
        ]
        averages = (with_unit(each, "%") for each in (self.average_wer, self.average))
        return [*rows, ("average", "", *averages, _times(self.rtfx))]


def _rate(score: Score) -> str:
    return f"{score.value:.2f} % ({score.low:.2f}–{score.high:.2f})"


def _times(rtfx: float | None) -> str:
    return "–" if rtfx is None else f"{rtfx:.1f}"


@dataclass(frozen=True, slots=True)
class SetProgress:
    """How far a set is."""

    name: str
    done: int
    total: int


def decode_set(
    one: EvalSet, transcribe: Transcribe, batch: int, device: torch.device, site: Site
) -> Generator[SetProgress, None, list[LeaderboardLine]]:
    """The clips of a set, longest first in batches, in the order of the manifest."""
    with tempfile.TemporaryDirectory() as index:
        corpus = open_corpus(one.name, [fetch_manifest(one.source, site.cache)], Path(index))
        _require_sound(corpus)
        order = np.argsort(-corpus.seconds, kind="stable")
        found: dict[int, LeaderboardLine] = {}
        for first in range(0, len(order), batch):
            rows = [int(row) for row in order[first : first + batch]]
            utterances = [corpus[row] for row in rows]
            found.update(zip(rows, _timed(utterances, transcribe, device, is_first=not first), strict=True))
            yield SetProgress(one.name, len(found), len(order))
        return [found[row] for row in range(len(order))]


def _require_sound(corpus: Corpus) -> None:
    if corpus.problems:
        problem = corpus.problems[0]
        raise DataError(f"{problem.where}: {problem.reason}. A score without it would not be comparable.")
    if not len(corpus):
        raise DataError(f"The set {corpus.name} is empty.")


def _timed(
    utterances: Sequence[Utterance], transcribe: Transcribe, device: torch.device, is_first: bool
) -> Iterator[LeaderboardLine]:
    recordings = [read_utterance(each) for each in utterances]
    if is_first:
        transcribe(recordings)
    _wait(device)
    began = time.perf_counter()
    texts = transcribe(recordings)
    _wait(device)
    share = (time.perf_counter() - began) / len(recordings)
    for utterance, samples, text in zip(utterances, recordings, texts, strict=True):
        seconds = round(len(samples) / SAMPLE_RATE, 4)
        yield LeaderboardLine(utterance.id, seconds, share, utterance.text or "", text)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def read_lines(path: Path) -> list[LeaderboardLine]:
    """The lines of another system: the leaderboard's layout, or predictions, which have no times."""
    lines = []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text file: {error}.") from error
    for number, line in enumerate(files.split_lines(text), 1):
        try:
            lines.append(_line(parse_json(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(
                f"{path}:{number}: expected audio_filepath, duration, time, text and pred_text, or a prediction with "
                "id, value and reference."
            ) from error
    if not lines:
        raise DataError(f"{path} is empty.")
    return lines


def _line(row: Mapping[str, Any]) -> LeaderboardLine:
    if "pred_text" in row:
        duration, spent = float(row.get("duration") or 0.0), float(row.get("time") or 0.0)
        if not math.isfinite(duration + spent):
            raise ValueError
        name = str(row.get("audio_filepath", ""))
        return LeaderboardLine(name, duration, spent, _text(row["text"]), _text(row["pred_text"] or ""))
    return LeaderboardLine(row["id"], 0.0, 0.0, _text(row["reference"]), _text(row["value"] or ""))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def score_set(name: str, lines: Sequence[LeaderboardLine], normalize: Callable[[str], str]) -> SetResult:
    """Both word error rates of a set; references that are empty once normalized are left out, as on the leaderboard."""
    pairs = [(normalize(line.text), normalize(line.pred_text)) for line in lines if line.text.strip() != IGNORED]
    kept = [(one, two) for one, two in pairs if one.strip()]
    if not kept:
        raise ConfigError(f"The set {name} has no references.")
    references, hypotheses = [one for one, _ in kept], [two for _, two in kept]
    wer = score_texts(references, hypotheses).values["wer"]
    seconds = (sum(line.duration for line in lines), sum(line.time for line in lines))
    return SetResult(name, len(kept), wer, compound_wer(references, hypotheses), *seconds)


def write_set(folder: Path, name: str, lines: Iterable[LeaderboardLine]) -> None:
    """The leaderboard's file of a set, and its predictions for `attune score` and reports."""
    rows = list(lines)
    written = "".join(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in rows)
    unique = dict.fromkeys(line.audio_filepath for line in rows)
    names = [line.audio_filepath if len(unique) == len(rows) else f"{at}" for at, line in enumerate(rows)]
    pairs = zip(names, rows, strict=True)
    write_predictions(
        folder / "predictions" / f"{name}.jsonl", [Prediction(one, row.pred_text, row.text) for one, row in pairs]
    )
    files.write_text(folder / f"{name}.jsonl", written)
