"""Every check is shown a task that breaks exactly its promise."""

import uuid
from dataclasses import replace

import pytest
from torch import nn

from attune.tasks.classify import Classify, ClassifyConfig
from attune.testing import CheckFailed, check_task
from attune.types import Score, Utterance

UTTERANCES = [Utterance(str(row), 1.0, labels={"label": name}) for row, name in enumerate("abcba")]


class PreparesAtRandom(Classify):
    @staticmethod
    def prepare(config, utterances, folder):
        Classify.prepare(config, utterances, folder)
        (folder / "note").write_text(uuid.uuid4().hex)


class ReadsTheNextLabel(Classify):
    def read(self, hypothesis):
        return self.names[(hypothesis.tokens[0] + 1) % len(self.names)]


class IsNeverSatisfied(Classify):
    def score(self, predictions):
        scores = super().score(predictions)
        return replace(scores, values={"accuracy": Score(99.0, 98.0, 100.0)})


class AddsOneToACount(Classify):
    def score(self, predictions):
        scores = super().score(predictions)
        return replace(scores, counts={name: count + 1 for name, count in scores.counts.items()})


class HasAnIdleLayer(Classify):
    def head(self, width):
        head = super().head(width)
        head.idle = nn.Linear(2, 2)
        return head


def test_a_sound_task_passes():
    check_task(Classify, ClassifyConfig(), UTTERANCES)


@pytest.mark.parametrize(
    ("task", "promise"),
    [
        (PreparesAtRandom, "preparation: the same utterances prepared twice give different files"),
        (ReadsTheNextLabel, "reading: the target of '0' reads 'b': accuracy 0 against 'a'"),
        (IsNeverSatisfied, "scoring: perfect predictions have accuracy 99, neither 0 nor 100"),
        (AddsOneToACount, "scoring: num_correct of two halves is 3 and 4, of the whole 6"),
        (HasAnIdleLayer, "gradients: the trainable parameter idle.weight gets none"),
    ],
)
def test_a_broken_promise_is_named(task, promise):
    with pytest.raises(CheckFailed) as failure:
        check_task(task, ClassifyConfig(), UTTERANCES)
    assert f"- {promise}" in str(failure.value)
