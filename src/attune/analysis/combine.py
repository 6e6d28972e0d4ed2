"""Combine the outputs of several systems: transcripts by voting, labels and trials by calibrated scores.

Every system is a file, and every file has the same ids. What comes out is a predictions file. Settings are fitted on
files of a dev set, whose references are known, and applied to others.
"""

# N utterances or trials, S systems
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError
from attune.files import parse_json, split_lines
from attune.metrics import Prediction
from attune.report.predictions import read_predictions
from attune.scoring import edits
from attune.scoring.calibration import (
    LogisticFusion,
    ReliabilityBin,
    expected_calibration_error,
    fit_fusion,
    reliability,
)
from attune.scoring.rover import ScoredWord, Vote, VotingRules, vote
from attune.tasks.verify_speaker import scored_trials, trials_of

GRID = tuple(step / 10 for step in range(11))

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SystemTranscript:
    """What a system has for an utterance: words with confidences, alternatives if there are any, the reference."""

    words: tuple[ScoredWord, ...]
    alternatives: tuple[tuple[ScoredWord, ...], ...] = ()
    reference: str | None = None


System = Mapping[str, SystemTranscript]


def read_system(path: Path, normalize: Callable[[str], str]) -> System:
    """The transcripts of a file by id: a CTM, predictions, or what `attune transcribe --json` or `--out` wrote.

    Words without confidences of their own have the mean probability per word of their transcript, if that is known.
    """
    rows = _read_ctm(path) if path.suffix.lower() == ".ctm" else _read_json(path)
    found: dict[str, SystemTranscript] = {}
    for name, row in rows:
        if name in found:
            raise DataError(f"{path} has two transcripts of {name!r}. Recordings need names of their own.")
        found[name] = _normalized(row, normalize)
    if not found:
        raise DataError(f"{path} has no transcripts. Expected a CTM, or JSON with ids and texts.")
    return found


def _read_ctm(path: Path) -> Iterator[tuple[str, SystemTranscript]]:
    words: dict[str, list[tuple[float, ScoredWord]]] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        fields = line.split()
        if not fields or line.startswith(";;"):
            continue
        try:
            name, _, start, _, text, *rest = fields
            word = ScoredWord(text, float(rest[0]) if rest else 1.0)
            words.setdefault(name, []).append((float(start), word))
        except ValueError as error:
            raise DataError(f"{path}:{number}: expected `NAME CHANNEL START SECONDS WORD [CONFIDENCE]`.") from error
    for name, found in words.items():
        yield name, SystemTranscript(tuple(word for _, word in sorted(found, key=lambda each: each[0])))


def _read_json(path: Path) -> Iterator[tuple[str, SystemTranscript]]:
    text = _text(path)
    try:
        rows = parse_json(text) if path.suffix.lower() == ".json" else [parse_json(line) for line in split_lines(text)]
        for row in rows:
            name = str(row["id"] if "id" in row else Path(row["path"]).stem)
            if row.get("file") or not isinstance(row.get("value"), str | None):
                raise DataError(f"{path}: the value of {name!r} is no text. Give transcripts, or name the --task.")
            yield name, _transcript(row)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path}: {error!r}. Expected JSON with an id, and a text or words, for each utterance."
        ) from error


def _transcript(row: Mapping[str, Any]) -> SystemTranscript:
    reference = row.get("reference")
    alternatives = tuple(_alternatives(row.get("nbest") or ()))
    if row.get("words"):
        words = tuple(ScoredWord(each["text"], float(each.get("confidence", 1.0))) for each in row["words"])
    else:
        words = _scored(row["value"] if "value" in row else row["text"], row.get("score"))
    return SystemTranscript(words, alternatives, reference if isinstance(reference, str) else None)


def _scored(text: str | None, score: float | None) -> tuple[ScoredWord, ...]:
    words = (text or "").split()
    confidence = math.exp(min(0.0, score) / max(1, len(words))) if score is not None else 1.0
    return tuple(ScoredWord(word, confidence) for word in words)


def _alternatives(nbest: Sequence[Mapping[str, Any]]) -> Iterator[tuple[ScoredWord, ...]]:
    """The n best texts; a word is as sure as its text is among them."""
    scores = np.array([float(each["score"]) for each in nbest])
    shares = np.exp(scores - scores.max()) if len(scores) else scores
    for each, share in zip(nbest, shares / max(shares.sum(), 1e-300), strict=True):
        yield tuple(ScoredWord(word, float(share)) for word in each["text"].split())


def _normalized(row: SystemTranscript, normalize: Callable[[str], str]) -> SystemTranscript:
    """The words of normalized texts: as a whole, as some words belong together."""

    def changed(words: Sequence[ScoredWord]) -> tuple[ScoredWord, ...]:
        single = [replace(word, text=text) for word in words for text in normalize(word.text).split()]
        whole = normalize(" ".join(word.text for word in words)).split()
        return tuple(single) if [word.text for word in single] == whole else tuple(_with_confidences(whole, single))

    reference = None if row.reference is None else normalize(row.reference)
    return SystemTranscript(changed(row.words), tuple(map(changed, row.alternatives)), reference)


def _with_confidences(texts: Sequence[str], words: Sequence[ScoredWord]) -> Iterator[ScoredWord]:
    """Texts as sure as the words in their places, or as those are on the whole."""
    usual = sum(word.confidence for word in words) / max(1, len(words))
    following = iter(words)
    for one, text in edits.align([word.text for word in words], texts):
        confidence = usual if one is None else next(following).confidence
        if text is not None:
            yield ScoredWord(text, confidence)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text file: {error}.") from error


def read_references(path: Path) -> dict[str, str]:
    """The texts of a manifest or the references of predictions, by id."""
    known = {}
    for number, line in enumerate(split_lines(_text(path)), 1):
        try:
            row = parse_json(line)
            text = row["reference"] if "reference" in row else row["text"]
            if not isinstance(text, str):
                raise TypeError
            known[str(row["id"] if "id" in row else Path(row["audio"]).stem)] = text
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path}:{number}: expected JSON with an id and a text or reference.") from error
    return known


def with_references(systems: Sequence[System], references: Mapping[str, str]) -> list[System]:
    """The systems with these references, where they have none of their own."""
    return [
        {name: replace(row, reference=row.reference or references.get(name)) for name, row in system.items()}
        for system in systems
    ]


def silent_in(system: System, systems: Sequence[System]) -> list[str]:
    """The recordings of other systems that a CTM, which has a line for each word, has no word of.

    None where it has no recording in common with another: it is of another set.
    """
    others = [other for other in systems if other is not system]
    missing = [name for name in dict.fromkeys(name for other in others for name in other) if name not in system]
    return missing if any(name in other for other in others for name in system) else []


def combine_transcripts(systems: Sequence[System], rules: VotingRules, nbest: bool = False) -> list[Prediction]:
    """The votes of all systems, or of all alternatives of theirs, in the order of the first system."""
    _require_same_ids([set(system) for system in systems])
    return [_voted(name, [system[name] for system in systems], rules, nbest) for name in systems[0]]


def _voted(name: str, rows: Sequence[SystemTranscript], rules: VotingRules, nbest: bool) -> Prediction:
    texts = [each for row in rows for each in (row.alternatives or (row.words,))] if nbest else [r.words for r in rows]
    words = vote(texts, rules)
    score = sum(math.log(max(word.confidence, 1e-10)) for word in words)
    reference = next((row.reference for row in rows if row.reference is not None), None)
    return Prediction(name, " ".join(word.text for word in words), reference, score)


def fit_voting(systems: Sequence[System], votes: Sequence[Vote] = get_args(Vote), nbest: bool = False) -> VotingRules:
    """The rules with the fewest word errors on these systems, of a grid; of equal ones the simplest."""
    candidates = [VotingRules()] if "frequency" in votes else []
    candidates += [
        VotingRules(each, alpha, null) for each in votes if each != "frequency" for alpha, null in product(GRID, GRID)
    ]
    return min(candidates, key=lambda rules: word_errors(combine_transcripts(systems, rules, nbest)))


def word_errors(predictions: Sequence[Prediction]) -> int:
    """All word edits of predictions that have references."""
    pairs = [(each.reference, each.value) for each in predictions if isinstance(each.reference, str)]
    if not pairs:
        raise DataError("No file has references. Add --references FILE.")
    return sum(edits.count(one.split(), str(two).split()).total for one, two in pairs)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Combined predictions, the fusion that made them, and how well their probabilities are calibrated."""

    predictions: tuple[Prediction, ...]
    fusions: tuple[LogisticFusion, ...]
    ece: float | None  # where no reference is known
    bins: tuple[ReliabilityBin, ...]


def read_labels(path: Path) -> dict[str, Prediction]:
    """Predicted labels with their scores, by id."""
    found = {each.id: each for each in read_predictions(path)}
    if any(each.score is None for each in found.values() if not each.is_absent):
        raise DataError(f"{path}: predictions without a score cannot be calibrated. Evaluate the model again.")
    return found


def combine_labels(dev: Sequence[Mapping[str, Prediction]], test: Sequence[Mapping[str, Prediction]]) -> Calibrated:
    """Each system calibrated on dev to how probably it is right; the label with the most log-odds in all wins."""
    _require_same_ids([set(system) for system in test])
    fusions = tuple(_label_calibration(system, number) for number, system in enumerate(dev, 1))
    found = [_fused_label([system[name] for system in test], fusions) for name in test[0]]
    known = [each for each in found if each.reference is not None and each.score is not None]
    chances = np.exp([each.score or 0.0 for each in known])
    is_right = np.array([each.value == each.reference for each in known], np.bool_)
    ece = expected_calibration_error(chances, is_right) if known else None
    return Calibrated(tuple(found), fusions, ece, tuple(reliability(chances, is_right)) if known else ())


def _label_calibration(system: Mapping[str, Prediction], number: int) -> LogisticFusion:
    rows = [each for each in system.values() if not each.is_absent]
    scores = np.array([[each.score or 0.0] for each in rows])
    is_right = np.array([each.value == each.reference for each in rows], np.bool_)
    if is_right.all() or not is_right.any():
        what = f"all {len(rows)} are {'right' if is_right.all() else 'wrong'}" if rows else "it has no predictions"
        raise DataError(f"--fit file {number}: {what}. Calibration needs right and wrong ones: use a larger dev set.")
    return fit_fusion(scores, is_right, prior=min(max(float(is_right.mean()), 0.01), 0.99))


def _fused_label(rows: Sequence[Prediction], fusions: Sequence[LogisticFusion]) -> Prediction:
    odds: dict[str, float] = {}
    for row, fusion in zip(rows, fusions, strict=True):
        if not row.is_absent:
            ratio = float(fusion.apply(np.array([[row.score or 0.0]]))[0])
            own = ratio + math.log(fusion.prior / (1 - fusion.prior))
            label = str(row.value)
            odds[label] = odds.get(label, 0.0) + own
    if not odds:
        return replace(rows[0], value=None, score=None)
    best = max(odds, key=lambda label: odds[label])
    return Prediction(rows[0].id, best, rows[0].reference, -float(np.logaddexp(0.0, -odds[best])))


@dataclass(frozen=True, slots=True)
class TrialScores:
    """The scores of a system's trials (N,), and which are target trials."""

    names: tuple[str, ...]
    scores: Floats
    is_target: NDArray[np.bool_]


def read_trials(path: Path, listed: Path | None) -> TrialScores:
    """Trials as predictions of a number and a truth value, or made of embeddings by a trial list or all pairs."""
    predictions = read_predictions(path)
    if all(isinstance(each.value, int | float) and isinstance(each.reference, bool) for each in predictions):
        scores = [float(each.value) for each in predictions if isinstance(each.value, int | float)]
        return TrialScores(
            tuple(each.id for each in predictions), np.array(scores), np.array([each.reference for each in predictions])
        )
    if not all(isinstance(each.value, list) or each.is_absent for each in predictions):
        raise DataError(f"{path}: expected embeddings, or numbers with true or false as references.")
    trials = scored_trials(predictions, trials_of(predictions, listed))  # a list may repeat some
    unique = {f"{one} {other}": (score, is_target) for (is_target, one, other), score in trials}
    known = unique.values()
    return TrialScores(tuple(unique), np.array([each[0] for each in known]), np.array([each[1] for each in known]))


def combine_trials(dev: Sequence[TrialScores], test: Sequence[TrialScores], prior: float) -> Calibrated:
    """Log-likelihood ratios of the test trials, by a fusion that is fitted on the dev trials."""
    fusion = fit_fusion(_columns(dev), dev[0].is_target, prior)
    ratios = fusion.apply(_columns(test))
    rows = zip(test[0].names, ratios.tolist(), test[0].is_target.tolist(), strict=True)
    found = tuple(Prediction(name, ratio, is_target, ratio) for name, ratio, is_target in rows)
    chances = 1 / (1 + np.exp(-(ratios + math.log(prior / (1 - prior)))))
    ece, bins = expected_calibration_error(chances, test[0].is_target), reliability(chances, test[0].is_target)
    return Calibrated(found, (fusion,), ece, tuple(bins))


def _columns(systems: Sequence[TrialScores]) -> Floats:
    _require_same_ids([set(system.names) for system in systems])
    order = {name: place for place, name in enumerate(systems[0].names)}
    columns = np.zeros((len(order), len(systems)))
    for number, system in enumerate(systems):
        places = [order[name] for name in system.names]
        columns[places, number] = system.scores
        if (system.is_target != systems[0].is_target[places]).any():
            raise DataError(f"File {number + 1} has other answers than the first. Combine files of one set.")
    return columns


def _require_same_ids(systems: Sequence[set[str]]) -> None:
    for number, ids in enumerate(systems[1:], 2):
        if different := sorted(ids ^ systems[0]):
            raise DataError(
                f"File {number} has different ids than the first: {len(different)} differ, such as {different[0]!r}. "
                "Combine files of one set."
            )
