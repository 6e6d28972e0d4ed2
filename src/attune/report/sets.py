"""One scored set as a page shows it: columns by row, scores of parts, what is confused, and what its task adds.

What is shown follows what was predicted: texts are aligned, labels get a confusion matrix, embeddings a DET curve,
segments a time axis, audio a player; anything else is a table of values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from attune.metrics import Json, Metric, Prediction, Scores
from attune.report.diffs import Diff, WordCounts, diff
from attune.report.flags import FLAGS, Judged, flags_of
from attune.report.slices import DECIBELS, MOST_VALUES, SECONDS, Ratios, bins, slices_of
from attune.report.sounds import estimated_snrs, snr_of, sound_of
from attune.report.tables import metric_label, scores_json, without_repeats
from attune.scoring.accuracy import ACCURACY
from attune.scoring.bleu import BLEU
from attune.scoring.error_rates import WER
from attune.types import Utterance

Kind = Literal["text", "labels", "trials", "segments", "audio", "other"]

PHONE_ERROR_RATE = "per"
MOST_CONFUSIONS = 500
MOST_WORDS = 20_000
MOST_LABELS = 60  # of a confusion matrix
ESTIMATED = 400  # recordings whose noise is estimated


@dataclass(frozen=True, slots=True)
class SpeakerTrial:
    """Two sides, who speaks on each, and the score that they are one speaker."""

    name: str
    is_target: bool
    speakers: tuple[str, str]
    score: float


@dataclass(frozen=True, slots=True)
class ScoredSet:
    """Predictions of a set with all that is known about them; utterances are in the order of the predictions."""

    name: str
    predictions: Sequence[Prediction]
    scores: Scores
    utterances: Sequence[Utterance | None]
    origins: Sequence[str] = ()  # the data set that each row is of, where there are several
    normalize: Callable[[str], str] | None = None
    vocabulary: frozenset[str] | None = None  # the words of the training texts
    values: Sequence[float | None] = ()  # a score of each row alone, where the task has one
    trials: Sequence[SpeakerTrial] = ()
    extras: Mapping[str, Json] = field(default_factory=dict)  # what its task adds
    embedded: int = 50  # recordings inside the page, of the worst rows


@dataclass(frozen=True, slots=True)
class _Texts:
    """The columns of texts, and the counts over all of them."""

    rows: list[Json]
    diffs: list[Diff]
    words: list[int]
    judged: list[Judged]
    counts: WordCounts


def kind_of(predictions: Sequence[Prediction], scores: Scores) -> Kind:
    """What was predicted."""
    if ACCURACY.name in scores.values:
        return "labels"
    for each in predictions:
        if each.file is not None:
            return "audio" if each.file.endswith(".wav") else "other"
        if each.value is not None:
            return _kind_of_value(each)
    return "text" if all(isinstance(each.reference, str) for each in predictions) else "other"


def _kind_of_value(prediction: Prediction) -> Kind:
    match prediction.value:
        case str() if isinstance(prediction.reference, str):
            return "text"
        case {"text": str()} if isinstance(prediction.reference, Mapping):
            return "text"
        case {"segments": _}:
            return "segments"
        case [float() | int(), *_]:
            return "trials"
    return "other"


def text_metric(scores: Scores) -> Metric | None:
    """The task's metric of texts if that is one of words or n-grams."""
    for name, score in scores.values.items():
        if name == BLEU.name:
            return BLEU
        if name in (WER.name, PHONE_ERROR_RATE):
            return score.metric
    return None


def set_data(scored: ScoredSet) -> dict[str, Json]:
    """All that the page shows of a set, as plain data."""
    kind = kind_of(scored.predictions, scored.scores)
    data: dict[str, Any] = {
        "name": scored.name,
        "kind": kind,
        "metrics": metrics_of(scored.scores),
        "conditions": dict(scored.scores.conditions),
        "counts": dict(scored.scores.counts),
        **columns_of(scored),
        **scored.extras,
    }
    ratios = None
    if kind == "text":
        texts = _texts(scored)
        data |= _text_data(texts, scored)
        ratios = _edit_ratios(texts, scored)
    elif kind == "labels":
        data |= _label_data(scored)
        right = np.array([each.value == each.reference for each in scored.predictions], np.int64)
        ratios = Ratios(ACCURACY, right, np.ones_like(right))
    else:
        data["values"] = [_rounded(each) for each in scored.values]
        data["texts"] = [[_plain(each.reference), _plain(each.value)] for each in scored.predictions]
    data["fields"] = _fields_of(scored)
    worst = _worst(data, scored)
    data["sounds"] = {str(row): found for row in worst if (found := _sound(scored.utterances[row]))}
    labels = labels_of(scored.utterances)
    data["labels"] = {name: coded(values) for name, values in labels.items()}
    data["slices"] = slices_of(ratios, _scored_groups({**labels, **groups_of(data)}, scored)) if ratios else {}
    return data


def _scored_groups(groups: Mapping[str, Sequence[str | None]], scored: ScoredSet) -> dict[str, Sequence[str | None]]:
    """The groups of what is known, without the rows that have no prediction."""
    pairs = {kind: zip(names, scored.predictions, strict=True) for kind, names in groups.items() if names}
    return {kind: [None if each.is_absent else name for name, each in rows] for kind, rows in pairs.items()}


def metrics_of(scores: Scores) -> list[Json]:
    """Each score with its label, value, interval and unit."""
    saved: Any = scores_json(scores)["scores"]
    names = without_repeats(scores.values, scores.conditions)
    return [{"name": name, "label": metric_label(name), **(saved[name] or {})} for name in names]


def columns_of(scored: ScoredSet) -> dict[str, Json]:
    """What every kind of set has: who, how long, where."""
    known = scored.utterances
    return {
        "ids": [each.id for each in scored.predictions],
        "seconds": [round(each.seconds, 2) if each else None for each in known],
        "starts": [each.start if each else None for each in known]
        if any(each and each.start for each in known)
        else [],
        "speakers": coded([each.speaker if each else None for each in known]),
        "languages": coded([_language(*pair) for pair in zip(known, scored.predictions, strict=True)]),
        "sets": coded(scored.origins),
        "scores": [each.score for each in scored.predictions],
        "audio": [str(each.audio) if each and each.audio else None for each in known],
        "places": {str(row): place for row, each in enumerate(known) if each and (place := _place(each))},
        "snr": _snrs(known),
    }


def _place(utterance: Utterance) -> dict[str, Json]:
    """Where in its file a recording is, which a manifest of some rows must keep."""
    names = ("channel", "first_byte", "byte_count", "row")
    return {name: value for name in names if (value := getattr(utterance, name)) is not None}


def _fields_of(scored: ScoredSet) -> dict[str, Json]:
    """By row, what else a manifest of some rows must keep where their text alone is not what was predicted."""
    pairs = zip(scored.utterances, scored.predictions, strict=True)
    return {
        str(row): found
        for row, (each, prediction) in enumerate(pairs)
        if each and each.text != prediction.reference and (found := _fields(each))
    }


def _fields(utterance: Utterance) -> dict[str, Json]:
    known: dict[str, Any] = {
        "text": utterance.text,
        "labels": dict(utterance.labels),
        "signals": {role: str(path) for role, path in utterance.signals.items()},
        "segments": [asdict(each) for each in utterance.segments],
    }
    return {name: value for name, value in known.items() if value}


def _language(utterance: Utterance | None, prediction: Prediction) -> str | None:
    return (utterance.language if utterance else None) or prediction.language


def coded(values: Sequence[str | None]) -> Json:
    """A column of few different texts: the texts, and the number of each row's; nothing where there is none."""
    names = sorted({value for value in values if value is not None})
    numbers = {name: number for number, name in enumerate(names)}
    return {"names": names, "codes": [-1 if value is None else numbers[value] for value in values]} if names else None


def _snrs(utterances: Sequence[Utterance | None]) -> list[Json]:
    """As the manifest has them, or else estimated from some of the recordings."""
    given: list[Json] = [snr_of(each) if each else None for each in utterances]
    if any(each is not None for each in given):
        return given
    step = max(1, len(utterances) // ESTIMATED)
    found = estimated_snrs(each for each in utterances[::step] if each is not None and each.audio is not None)
    return [found.get(each.id) if each else None for each in utterances]


def _texts(scored: ScoredSet) -> _Texts:
    texts = _Texts([], [], [], [], WordCounts())
    normalize = scored.normalize or (lambda text: text)
    for each in scored.predictions:
        raw_reference, raw = _text(each.reference), None if each.is_absent else _text(each.value)
        reference, found = normalize(raw_reference).split(), None if raw is None else normalize(raw).split()
        # An absent prediction is not scored, so it is not compared either: it has no code.
        change = Diff("", 0, 0, 0) if found is None else diff(reference, found, texts.counts)
        code = None if found is None else change.code
        joined, hypothesis = " ".join(reference), None if found is None else " ".join(found)
        texts.rows.append(
            [joined, code, raw_reference if raw_reference != joined else 0, raw if raw != hypothesis else 0]
        )
        texts.diffs.append(change)
        texts.words.append(0 if found is None else len(reference))
        texts.judged.append(Judged(reference, found, change.total, each.score))
    return texts


def _text(value: Json) -> str:
    return str(value["text"]) if isinstance(value, Mapping) else str(value or "")


def _text_data(texts: _Texts, scored: ScoredSet) -> dict[str, Json]:
    counts = texts.counts
    confused: list[Any] = sorted(
        counts.confused.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1] or "")
    )
    words: list[Json] = [[word, seen, seen - counts.wrong[word]] for word, seen in counts.seen.most_common(MOST_WORDS)]
    return {
        "texts": texts.rows,
        "insertions": [each.insertions for each in texts.diffs],
        "deletions": [each.deletions for each in texts.diffs],
        "substitutions": [each.substitutions for each in texts.diffs],
        "words": texts.words,
        "flags": {"names": dict(FLAGS), "bits": flags_of(texts.judged, scored.vocabulary)},
        "confusions": [[wanted, found, count] for (wanted, found), count in confused[:MOST_CONFUSIONS]],
        "vocabulary": words,
        "differentWords": len(counts.seen),
    }


def _edit_ratios(texts: _Texts, scored: ScoredSet) -> Ratios:
    """The error rate of the words, under the name that the task has for it."""
    own = text_metric(scored.scores)
    totals = np.array([each.total for each in texts.diffs], np.int64)
    return Ratios(WER if own in (None, BLEU) else own, totals, np.array(texts.words, np.int64))


def _label_data(scored: ScoredSet) -> dict[str, Json]:
    pairs = [(str(each.reference), None if each.is_absent else str(each.value)) for each in scored.predictions]
    frequent: dict[str, int] = {}
    for wanted, found in pairs:
        frequent[wanted] = frequent.get(wanted, 0) + 1
        frequent.setdefault(found or wanted, 0)
    names = sorted(sorted(frequent, key=lambda name: -frequent[name])[:MOST_LABELS])
    place = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for wanted, found in pairs:
        if wanted in place and found in place:
            counts[place[wanted], place[found]] += 1
    return {
        "texts": [[wanted, found] for wanted, found in pairs],
        "matrix": {"names": names, "counts": counts.tolist(), "different": len(frequent)},
    }


def _rounded(value: float | None) -> float | None:
    """JSON has no infinity, such as the SI-SDR of a perfect estimate."""
    return None if value is None or not math.isfinite(value) else round(value, 3)


def _worst(data: Mapping[str, Any], scored: ScoredSet) -> list[int]:
    """The rows whose recordings are inside the page: the most errors first."""
    order = sorted(range(len(scored.predictions)), key=lambda row: (_goodness(row, data, scored), row))
    return [row for row in order if _has_audio(scored.utterances[row])][: scored.embedded]


def _goodness(row: int, data: Mapping[str, Any], scored: ScoredSet) -> float:
    match data["kind"]:
        case "text":
            return -float(sum(data[name][row] for name in ("insertions", "deletions", "substitutions")))
        case "labels":
            return float(data["texts"][row][0] == data["texts"][row][1])
    value = scored.values[row] if scored.values else None
    if value is None:
        return math.inf
    return value if next(iter(scored.scores.values.values())).metric.higher_is_better else -value


def _has_audio(utterance: Utterance | None) -> bool:
    return utterance is not None and utterance.audio is not None


def _sound(utterance: Utterance | None) -> Json:
    return sound_of(utterance) if utterance else None


def groups_of(data: Mapping[str, Any]) -> dict[str, Sequence[str | None]]:
    """The names of the groups that each row is in, by kind of group."""
    return {
        "duration": bins(data["seconds"], SECONDS, "s"),
        "speaker": _decoded(data["speakers"]),
        "data set": _decoded(data["sets"]),
        "language": _decoded(data["languages"]),
        "SNR": bins(data["snr"], DECIBELS, "dB"),
    }


def _decoded(column: Any) -> list[str | None]:
    return [None if code < 0 else column["names"][code] for code in column["codes"]] if column else []


def labels_of(utterances: Sequence[Utterance | None]) -> dict[str, list[str | None]]:
    """Labels with few values, such as an accent, by row; not those that are texts or numbers of their own."""
    values: dict[str, set[str]] = {}
    for each in utterances:
        for name, value in each.labels.items() if each else ():
            values.setdefault(name, set()).add(value)
    names = sorted(name for name, own in values.items() if 1 < len(own) <= MOST_VALUES and name != "snr")
    return {name: [each.labels.get(name) if each else None for each in utterances] for name in names}


def _plain(value: Json) -> Json:
    """A value as it is shown in a table: short text."""
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, ensure_ascii=False)[:200]
