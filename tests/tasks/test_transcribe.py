from pathlib import Path

import pytest
import torch

from attune.errors import ConfigError, DataError
from attune.tasks.transcribe import TASK, CtcHeadConfig, TranscribeConfig
from attune.testing import check_task
from attune.types import Hypothesis, Prediction, ScoringContext, Utterance

from tiny import batch_of

TEXTS = ("Hello, world!", "a bee", "no", "Oh no: a world of bees", "all of the bees")
CONTEXT = ScoringContext("test", Path(), {}, {}.__getitem__)
UTTERANCES = [Utterance(str(row), 1.0, text=text, where=f"m.jsonl:{row + 1}") for row, text in enumerate(TEXTS)]


def prepared(folder, **settings):
    config = TranscribeConfig(**settings)
    TASK.prepare(config, UTTERANCES, folder)
    return TASK(config, folder)


@pytest.mark.parametrize(
    "config",
    [
        TranscribeConfig(head=CtcHeadConfig(layers=1, width=4)),
        TranscribeConfig(normalizer="basic"),
        TranscribeConfig(tokens="bpe", vocabulary=24),
        TranscribeConfig(tokens="unigram", vocabulary=24, normalizer="basic"),
    ],
)
def test_keeps_every_promise(config):
    check_task(TASK, config, UTTERANCES)


def test_targets_are_normalized_and_read_back(tmp_path):
    task = prepared(tmp_path, normalizer="basic")
    target = task.target(UTTERANCES[0])
    assert 0 not in target
    assert task.read(Hypothesis(target, 0.0)) == "hello world"
    assert task.reference(UTTERANCES[0]) == "Hello, world!"


def test_text_may_be_learned_as_it_is_written_and_scored_normalized(tmp_path):
    task = prepared(tmp_path, normalizer="basic", learn="written")
    assert task.read(Hypothesis(task.target(UTTERANCES[0]), 0.0)) == "Hello, world!"
    assert task.score([Prediction("0", "hello world", "Hello, world!")], CONTEXT).values["wer"].value == 0


def test_what_is_to_be_learned_can_be_asked_without_a_vocabulary(tmp_path):
    task = TASK(TranscribeConfig(normalizer="basic", language="en"), tmp_path / "nothing")
    assert (task.language, task.text(UTTERANCES[0])) == ("en", "hello world")


TIMED = Utterance("t", 3.0, text="<|0.00|> Hello, world!<|1.20|><|1.40|> No!<|2.60|>")


def test_times_in_a_text_are_no_words(tmp_path):
    task = prepared(tmp_path, normalizer="basic")
    assert task.text(TIMED) == "<|0.00|>hello world<|1.20|><|1.40|>no<|2.60|>"  # for models that say when
    assert task.reference(TIMED) == "Hello, world! No!"
    assert task.read(Hypothesis(task.target(TIMED), 0.0)) == "hello world no"
    written = prepared(tmp_path / "written", normalizer="basic", learn="written")
    assert written.text(TIMED) == TIMED.text


def test_times_in_a_text_get_no_tokens(tmp_path):
    config = TranscribeConfig()
    TASK.prepare(config, [TIMED], tmp_path)
    assert not {"<", "|", "0"} & set(TASK(config, tmp_path).pieces)
    assert TASK.can_reuse(config, tmp_path, [TIMED])


def test_equal_neighbours_need_a_frame_between_them(tmp_path):
    task = prepared(tmp_path)
    assert task.frames_needed(()) == 0
    assert task.frames_needed((3, 4, 3)) == 3
    assert task.frames_needed((3, 3, 3, 4)) == 6


def test_figures_are_of_normalized_text_and_raw_ones_stand_beside_them(tmp_path):
    task = prepared(tmp_path, normalizer="basic")
    predictions = [Prediction("0", "hello world", "Hello, world!"), Prediction("1", "a bug", "a bee")]
    scores = task.score(predictions, CONTEXT)
    assert {name: score.value for name, score in scores.values.items()} == {
        "wer": 25.0,
        "cer": pytest.approx(100 * 2 / 16),
        "ser": 50.0,
        "raw_wer": 75.0,
        "raw_cer": pytest.approx(100 * 5 / 18),
    }
    assert scores.counts["substitutions"] == scores.counts["num_edits"] == 1
    assert scores.conditions == {"normalizer": "basic"}
    assert [score.metric for score in scores.values.values()] == list(TASK.metrics)


def test_an_absent_prediction_is_counted_and_not_scored(tmp_path):
    scores = prepared(tmp_path).score([Prediction("0", None, "a bee"), Prediction("1", "no", "no")], CONTEXT)
    assert scores.counts["num_absent_sents"] == 1
    assert scores.values["wer"].value == 0


@pytest.mark.parametrize(
    ("prediction", "problem"),
    [
        (Prediction("0", ["no"], "no"), "the value is a list, not text"),
        (Prediction("0", 3, "no"), "the value is a number, not text"),
        (Prediction("0", "no", {"start": 0.0}), "the reference is an object, not text"),
        (Prediction("0", None, "no", file="0.wav"), r"the value is a file \(0\.wav\), not text"),
    ],
)
def test_a_prediction_that_is_not_text_is_named(tmp_path, prediction, problem):
    with pytest.raises(DataError, match=f"Prediction '0': {problem}"):
        prepared(tmp_path).score([prediction], CONTEXT)


def test_an_utterance_without_text_is_named(tmp_path):
    task = prepared(tmp_path)
    silent = Utterance("x", 1.0, where="m.jsonl:9")
    for use in (task.target, task.reference, lambda each: TASK.prepare(task.config, [each], tmp_path)):
        with pytest.raises(DataError, match=r"m\.jsonl:9: utterance 'x' has no text"):
            use(silent)


def test_an_unknown_normalizer_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="basic"):
        prepared(tmp_path, normalizer="basik")


@pytest.mark.parametrize("settings", [{"tokens": "bpe"}, {"vocabulary": 30}])
def test_a_vocabulary_goes_with_sentencepiece_only(settings):
    with pytest.raises(ValueError, match="vocabulary"):
        TranscribeConfig(**settings)


def test_an_empty_text_is_learned_as_silence(tmp_path):
    head = prepared(tmp_path, head=CtcHeadConfig(layers=1, width=4)).head(3, 160).eval()
    batch = batch_of([("x", torch.zeros(1).numpy(), ())])
    frames, lengths = torch.randn(1, 5, 3), torch.tensor([5])
    loss = head.loss(frames, lengths, batch)
    blanks = head.scorer(frames, lengths, batch).log_probs[0, :, 0]
    assert loss.total.item() == pytest.approx(-blanks.sum().item(), rel=1e-5)
    assert loss.count.item() == 0


def test_dropout_follows_the_seed(tmp_path):
    head = prepared(tmp_path, head=CtcHeadConfig(layers=3, width=8, dropout=0.5)).head(3, 160).train()
    frames, lengths = torch.randn(2, 5, 3), torch.tensor([5, 4])

    def seeded(seed):
        torch.manual_seed(seed)
        return head(frames, lengths)

    assert torch.equal(seeded(1), seeded(1))
    assert not torch.equal(seeded(1), seeded(2))


def test_tokens_of_a_pretrained_model_serve_when_they_spell_all_of_the_text(tmp_path):
    config = prepared(tmp_path).config
    assert TASK.can_reuse(config, tmp_path, UTTERANCES)
    assert not TASK.can_reuse(config, tmp_path, [Utterance("x", 1.0, text="qué")])
    assert not TASK.can_reuse(TranscribeConfig(tokens="bpe", vocabulary=24), tmp_path, UTTERANCES)
