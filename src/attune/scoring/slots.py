"""Slot filling: which slots are found, and how their values are spelled, as SUPERB scores them.

Slot-type F1 is a mean over utterances of the F1 of two sets of slot types: 1 where both are empty, 0 where one is. (It
is not the chunk F1 of the CoNLL evaluation.) Slot-value CER compares each reference value with the nearest hypothesis
value of the same slot type, or with nothing where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from attune.metrics import Metric, Score
from attune.scoring import bootstrap
from attune.scoring.edits import distances

SLOT_TYPE_F1 = Metric("slot_type_f1", "%", True, "F1 of the slot types of each utterance, mean over utterances.")
SLOT_VALUE_CER = Metric("slot_value_cer", "%", False, "Character edits of slot values per character of the references.")


class Slot(NamedTuple):
    """A slot type, such as artist, and what fills it."""

    type: str
    value: str


def type_f1(reference: Iterable[Slot], hypothesis: Iterable[Slot]) -> float:
    """The F1 of the sets of slot types of one utterance, between 0 and 1."""
    wanted, found = {slot.type for slot in reference}, {slot.type for slot in hypothesis}
    if not wanted and not found:
        return 1.0
    return 2 * len(wanted & found) / (len(wanted) + len(found))


def value_edits(reference: Sequence[Slot], hypothesis: Sequence[Slot]) -> tuple[int, int]:
    """Character edits of the reference's slot values, and how many characters these have."""
    edits = 0
    for slot in reference:
        values = [other.value for other in hypothesis if other.type == slot.type] or [""]
        edits += int(distances([slot.value] * len(values), values).min())
    return edits, sum(len(slot.value) for slot in reference)


def score_slots(pairs: Sequence[tuple[Sequence[Slot], Sequence[Slot]]]) -> tuple[dict[str, Score], dict[str, int]]:
    """F1 and CER of references and hypotheses with their intervals, and the counts behind the CER."""
    f1 = [100 * type_f1(reference, hypothesis) for reference, hypothesis in pairs]
    edits, characters = zip(*(value_edits(*pair) for pair in pairs), strict=True) if pairs else ((), ())
    scores = (bootstrap.mean(SLOT_TYPE_F1, f1), bootstrap.percent(SLOT_VALUE_CER, edits, characters))
    counts = {"num_value_edits": sum(edits), "num_value_chars": sum(characters), "num_scored": len(pairs)}
    return {score.metric.name: score for score in scores}, counts
