import json
from pathlib import Path

import pytest
import torch

from attune.errors import DataError, ModelError
from attune.tasks.classify import TASK, ClassifyConfig, LabelHeadConfig
from attune.testing import check_task
from attune.types import Hypothesis, Prediction, ScoringContext, Utterance

MOODS = ("happy", "sad", "angry", "sad")
UTTERANCES = [
    Utterance(str(row), 1.0, speaker=f"s{row % 2}", text="hm", labels={"mood": mood}, where=f"m.csv:{row + 2}")
    for row, mood in enumerate(MOODS)
]
MOOD = ClassifyConfig(label="mood")


def prepared(folder, config=MOOD):
    TASK.prepare(config, UTTERANCES, folder)
    return TASK(config, folder)


@pytest.mark.parametrize("label", ["mood", "speaker"])
def test_keeps_every_promise(label):
    check_task(TASK, ClassifyConfig(label=label), UTTERANCES)


def test_labels_are_numbered_in_the_order_of_their_names(tmp_path):
    task = prepared(tmp_path)
    assert json.loads((tmp_path / "labels.json").read_text()) == ["angry", "happy", "sad"]
    assert [task.target(utterance) for utterance in UTTERANCES] == [(1,), (2,), (0,), (2,)]
    assert task.read(Hypothesis((2,), -0.1)) == "sad"


def test_a_label_that_training_never_saw_is_named_with_the_nearest(tmp_path):
    task = prepared(tmp_path)
    odd = Utterance("x", 1.0, labels={"mood": "hapy"}, where="m.csv:7")
    with pytest.raises(DataError, match=r"m\.csv:7: utterance 'x' has mood 'hapy'.*did you mean 'happy'"):
        task.target(odd)
    assert task.reference(odd) == "hapy"


def test_an_utterance_without_the_label_is_named_with_those_it_has(tmp_path):
    with pytest.raises(DataError, match=r"m\.csv:2: utterance '0' has no label 'mod'; did you mean 'mood'\?"):
        TASK.prepare(ClassifyConfig(label="mod"), UTTERANCES, tmp_path)


def test_one_label_for_all_is_refused(tmp_path):
    with pytest.raises(DataError, match="at least two"):
        TASK.prepare(ClassifyConfig(label="text"), UTTERANCES, tmp_path)


def test_missing_labels_say_where_they_should_be(tmp_path):
    with pytest.raises(ModelError, match=r"labels\.json"):
        TASK(MOOD, tmp_path)


def test_score_is_accuracy(tmp_path):
    predictions = [Prediction("0", "sad", "sad"), Prediction("1", "sad", "happy")]
    scores = prepared(tmp_path).score(predictions, ScoringContext("test", Path(), {}, {}.__getitem__))
    assert scores.values["accuracy"].value == 50.0


def test_the_mean_is_over_own_frames(tmp_path):
    head = prepared(tmp_path).head(3, 160)
    frames = torch.randn(2, 6, 3)
    scorer = head.scorer(frames, torch.tensor([6, 2]), None)
    assert torch.allclose(scorer.log_probs[1], head.scorer(frames[1:, :2], torch.tensor([2]), None).log_probs[0])
    assert torch.allclose(scorer.log_probs.exp().sum(-1), torch.ones(2))


def test_labels_of_a_pretrained_model_serve_only_when_they_are_the_same(tmp_path):
    prepared(tmp_path)
    assert TASK.can_reuse(MOOD, tmp_path, UTTERANCES)
    assert not TASK.can_reuse(MOOD, tmp_path, UTTERANCES[:1])


INTENTS = [("on", "light"), ("off", "light"), ("on", "fan")]
SLOTS = ClassifyConfig(label="action+object")


def intents():
    return [
        Utterance(str(row), 1.0, labels={"action": action, "object": thing})
        for row, (action, thing) in enumerate(INTENTS)
    ]


def test_several_labels_keep_every_promise_and_are_right_together():
    check_task(TASK, SLOTS, intents())


def test_several_labels_are_independent_and_combinations_that_training_lacks_can_be_predicted(tmp_path):
    TASK.prepare(SLOTS, intents(), tmp_path)
    task = TASK(SLOTS, tmp_path)
    assert task.names == ["off | fan", "off | light", "on | fan", "on | light"]
    head = task.head(3, 160)
    frames, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
    joint = head.scorer(frames, lengths, None).log_probs.view(2, 2, 2).exp()
    assert torch.allclose(joint, joint.sum(2, keepdim=True) * joint.sum(1, keepdim=True))
    assert head.output.out_features == 4  # one for each value, not for each combination


def test_without_an_activation_the_head_is_linear_in_the_mean_as_in_superb(tmp_path):
    TASK.prepare(MOOD, UTTERANCES, tmp_path)
    head = TASK(ClassifyConfig(label="mood", head=LabelHeadConfig(4, "none")), tmp_path).head(3, 160)
    frames, lengths = torch.randn(1, 6, 3), torch.tensor([6])
    mean = frames.mean(1, keepdim=True)
    one, other = head(frames, lengths), head(mean, torch.tensor([1]))
    assert torch.allclose(one, other, atol=1e-6)
