"""Every check is shown a task that breaks exactly its promise."""

import uuid
from dataclasses import replace

import pytest
from torch import nn

from attune.scoring.accuracy import ACCURACY
from attune.tasks.classify import Classify, ClassifyConfig
from attune.testing import CheckFailed, check_task
from attune.types import Metric, Prediction, Score, Utterance

UTTERANCES = [Utterance(str(row), 1.0, labels={"label": name}) for row, name in enumerate("abcba")]


class PreparesAtRandom(Classify):
    @staticmethod
    def prepare(config, utterances, folder):
        Classify.prepare(config, utterances, folder)
        (folder / "note").write_text(uuid.uuid4().hex)


class ReadsTheNextLabel(Classify):
    def read(self, hypothesis):
        return self.names[(hypothesis.tokens[0] + 1) % len(self.names)]


class CallsTheWorstTheBest(Classify):
    metrics = (replace(ACCURACY, higher_is_better=False),)

    def score(self, predictions, context):
        score = super().score(predictions, context)
        return replace(score, values={"accuracy": replace(score.values["accuracy"], metric=self.metrics[0])})


class DeclaresAnotherUnit(Classify):
    metrics = (replace(ACCURACY, unit="dB"),)


class ScoresInFurlongs(Classify):
    metrics = (ACCURACY, Metric("length", "furlong", True, "Of what?"))


class HasNoPrimaryScore(Classify):
    metrics = (Metric("f1", "%", True, "F1 of the labels."), ACCURACY)


class CallsNothingPerfect(Classify):
    def score(self, predictions, context):
        scores = super().score(predictions, context)
        absent = all(prediction.is_absent for prediction in predictions)
        return replace(scores, values={"accuracy": Score(ACCURACY, 100.0, 100.0, 100.0)}) if absent else scores


class AddsOneToACount(Classify):
    def score(self, predictions, context):
        scores = super().score(predictions, context)
        return replace(scores, counts={name: count + 1 for name, count in scores.counts.items()})


class AddsOneToACountOfAWholeSet(AddsOneToACount):
    scored_over = "set"


class PredictsWhatIsNoJson(Classify):
    def reference(self, utterance):
        return frozenset(super().reference(utterance))

    def target(self, utterance):
        return (self.ids["".join(self.reference(utterance))],)

    def score(self, predictions, context):
        texts = [
            replace(each, value="".join(each.value or ""), reference="".join(each.reference)) for each in predictions
        ]
        absent = [each if each.value else replace(each, value=None) for each in texts]
        return super().score(absent, context)


class ForgetsTheValueInAFile(Classify):
    """A tuple, which a file gives back as a list."""

    def reference(self, utterance):
        return (super().reference(utterance),)

    def target(self, utterance):
        return (self.ids[self.reference(utterance)[0]],)

    def read(self, hypothesis):
        return (super().read(hypothesis),)

    def score(self, predictions, context):
        known = [each for each in predictions if isinstance(each.value, tuple)]
        return super().score([Prediction(each.id, each.value[0], each.reference[0]) for each in known], context)


class HasAnIdleLayer(Classify):
    def head(self, width, stride):
        head = super().head(width, stride)
        head.idle = nn.Linear(2, 2)
        return head


class CountsItsCalls(Classify):
    """Its loss depends on how often it was asked, which no checkpoint has and no two ranks share."""

    def head(self, width, stride):
        head, calls = super().head(width, stride), []
        loss = head.loss

        def counted(frames, lengths, batch):
            calls.append(1)
            found = loss(frames, lengths, batch)
            return replace(found, total=found.total * len(calls)) if head.training else found

        head.loss = counted
        return head


class LooksAtItsNeighbors(Classify):
    def head(self, width, stride):
        head = super().head(width, stride)
        scorer = head.scorer
        head.scorer = lambda frames, lengths, batch: scorer(frames - frames.mean((0, 1)), lengths, batch)
        return head


@pytest.mark.parametrize("task", [Classify, AddsOneToACountOfAWholeSet])
def test_a_sound_task_passes(task):
    check_task(task, ClassifyConfig(), UTTERANCES)


def test_perfect_predictions_may_be_given_where_they_are_not_the_references():
    def perfect(utterance, folder):
        (folder / f"{utterance.id}.txt").write_text(utterance.labels["label"])
        return Prediction(utterance.id, None, utterance.labels["label"], file=f"{utterance.id}.txt")

    class ReadsFiles(Classify):
        def score(self, predictions, context):
            read = [
                replace(each, value=(context.folder / each.file).read_text(), file=None) if each.file else each
                for each in predictions
            ]
            return super().score(read, context)

    check_task(ReadsFiles, ClassifyConfig(), UTTERANCES, perfect)


@pytest.mark.parametrize(
    ("task", "promise"),
    [
        (PreparesAtRandom, "preparation: the same utterances prepared twice give different files"),
        (ReadsTheNextLabel, "reading: the target of '0' reads 'b': accuracy 0 instead of 100"),
        (CallsTheWorstTheBest, "scoring: with others' values, accuracy gets better: 100 when perfect, 20 then"),
        (DeclaresAnotherUnit, "scoring: accuracy is not the metric that the task declares under that name"),
        (ScoresInFurlongs, "scoring: the unit of length is 'furlong', not one of %, dB, s, "),
        (HasNoPrimaryScore, "scoring: perfect predictions have no f1, the primary metric"),
        (CallsNothingPerfect, "scoring: without any prediction, accuracy is 100 instead of NaN"),
        (
            PredictsWhatIsNoJson,
            "predictions: they cannot be written and read again: Prediction '0' is not valid JSON",
        ),
        (ForgetsTheValueInAFile, "predictions: written to a file and read again, they have other scores"),
        (AddsOneToACount, "scoring: num_correct of two halves is 3 and 4, of the whole 6"),
        (CountsItsCalls, "ranks: 3 steps on 2 ranks end in other weights than on one"),
        (CountsItsCalls, "ranks: 3 steps on 4 ranks end in other weights than on one"),
        (CountsItsCalls, "resume: killed after 2 steps and resumed, training ends in other weights"),
        (LooksAtItsNeighbors, "neighbors: the output of '0' in a batch: it changes by up to "),
        (HasAnIdleLayer, "gradients: the trainable parameter idle.weight gets none"),
    ],
)
def test_a_broken_promise_is_named(task, promise):
    with pytest.raises(CheckFailed) as failure:
        check_task(task, ClassifyConfig(), UTTERANCES)
    assert f"- {promise}" in str(failure.value)
