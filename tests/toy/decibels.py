"""Transcription scored in decibels, where more is better."""

import math

from attune.scoring.bootstrap import mean
from attune.scoring.edits import distances
from attune.scoring.texts import texts_of
from attune.tasks.transcribe import Transcribe
from attune.types import Metric, Scores

FIDELITY = Metric("fidelity", "dB", True, "Characters of the reference against characters in error.")


class Decibels(Transcribe):
    metrics = (FIDELITY,)

    def score(self, predictions, context):
        references, hypotheses = texts_of(predictions)
        texts = [(left, right) for left, right in zip(references, hypotheses, strict=True) if right is not None]
        errors = distances(*map(list, zip(*texts, strict=True))) if texts else []
        ratios = [
            10 * math.log10((len(left) + 1) / (edits + 1)) for (left, _), edits in zip(texts, errors, strict=True)
        ]
        return Scores({"fidelity": mean(FIDELITY, ratios)}, {"scored": len(ratios), "references": len(predictions)})


TASK = Decibels
