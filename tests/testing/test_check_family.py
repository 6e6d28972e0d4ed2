"""Every check is shown a model that breaks exactly its promise, or it would prove nothing."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attune.audio.features import fbank, within
from attune.audio.masking import mask_features
from attune.contracts import Family, TaskCodec, TaskModel
from attune.corpora import open_manifest
from attune.families.ssl import FAMILY, SslConfig
from attune.tasks.classify import Classify, ClassifyConfig
from attune.testing import CheckFailed, check_family, make_corpus
from attune.testing.family import _lattice_loss
from attune.types import Batch, LabelScorer, Loss, TokenTargets

from tiny_whisper import write_whisper
from toy import transducer as toy
from transducers import random_frames, random_transducer, totals


class Sound(nn.Module):
    """A whole classifier in a few lines; what inherits from it breaks one thing."""

    def __init__(self, labels=3):
        super().__init__()
        self.output = nn.Linear(240, labels)

    def pool(self, frames, lengths):
        return (frames.relu() * within(lengths, frames.shape[1])[..., None]).sum(1) / lengths[:, None]

    def logits(self, batch):
        frames, lengths = fbank(batch.audio, batch.lengths)
        if batch.masks:
            frames = mask_features(frames, lengths, batch.masks)
        return self.output(self.pool(frames.float(), lengths))

    def loss(self, batch):
        total = F.cross_entropy(self.logits(batch), batch.tokens.ids[:, 0], reduction="sum")
        return Loss(total, batch.tokens.lengths.sum())

    def scorer(self, batch):
        return LabelScorer(self.logits(batch).log_softmax(-1))

    def frames(self, samples):
        return 1


class PoolsOverPadding(Sound):
    def pool(self, frames, lengths):
        return frames.relu().mean(1)


class NormalizesOverTheBatch(Sound):
    def pool(self, frames, lengths):
        pooled = super().pool(frames, lengths)
        return pooled / pooled.norm(dim=0)


class NumbersItsRows(Sound):
    def logits(self, batch):
        return super().logits(batch) + torch.arange(len(batch.ids))[:, None] * torch.eye(3)[0]


class AveragesItsLoss(Sound):
    def loss(self, batch):
        loss = super().loss(batch)
        return Loss(loss.total / loss.count, loss.count)


class CountsBatches(Sound):
    def loss(self, batch):
        return Loss(super().loss(batch).total, torch.tensor(1))


class HidesAWeight(Sound):
    def __init__(self):
        super().__init__()
        self.scale = torch.rand(3)

    def logits(self, batch):
        return super().logits(batch) * self.scale


class LeavesAWeightUntrained(Sound):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2)


class SearchesSomethingElse(Sound):
    def scorer(self, batch):
        return LabelScorer((2 * self.logits(batch)).log_softmax(-1))


class GivesNaN(Sound):
    def scorer(self, batch):
        return LabelScorer(super().scorer(batch).log_probs * torch.nan)


class LooksBehindMasks(Sound):
    def logits(self, batch):
        return super().logits(replace(batch, masks=None))


class DrawsMasksOverTheBatch(Sound):
    def logits(self, batch):
        longest = batch.lengths.amax().expand_as(batch.lengths)
        return super().logits(replace(batch, lengths=longest) if batch.masks else batch)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    folder = tmp_path_factory.mktemp("case")
    utterances = list(open_manifest(make_corpus(folder, utterances=12, vocabulary=("be", "go")), folder / "index"))
    config = ClassifyConfig(label="register")
    Classify.prepare(config, utterances, folder)
    return Classify(config, folder), utterances[:3]


def check(case, model):
    task, utterances = case

    def build(_, task, assets):
        return TaskModel(model(), TaskCodec(task), "label")

    check_family(Family(object, build), None, task, utterances)


def test_a_sound_model_passes(case):
    check(case, Sound)


class WhoWrites(Classify):
    """Whose voice a text is for, from the text alone: it is what decoding is given."""

    needs_audio = False

    def prompt(self, utterance):
        return tuple(map(ord, utterance.text))

    def target(self, utterance):
        return (*super().target(utterance), *self.prompt(utterance))


class ReadsLetters(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(128, 3)

    def log_probs(self, ids, lengths):
        own = within(lengths, ids.shape[1])[..., None]
        return (self.letters(ids) * own).sum(1).log_softmax(-1)

    def loss(self, batch):
        ids, lengths = batch.tokens.ids, batch.tokens.lengths
        log_probs = self.log_probs(ids[:, 1:], lengths - 1)
        return Loss(F.nll_loss(log_probs, ids[:, 0], reduction="sum"), torch.tensor(float(len(ids))))

    def scorer(self, batch):
        return LabelScorer(self.log_probs(batch.tokens.ids, batch.tokens.lengths))

    def frames(self, samples):
        return 0


def test_a_model_of_text_has_no_features_to_mask(case, tmp_path):
    _, utterances = case
    config = ClassifyConfig(label="register")
    WhoWrites.prepare(config, utterances, tmp_path)
    check((WhoWrites(config, tmp_path), utterances), ReadsLetters)


@pytest.mark.parametrize(
    ("model", "promise"),
    [
        (PoolsOverPadding, "padding: the output of '00000'"),
        (PoolsOverPadding, "padding: the loss of '00000'"),
        (NormalizesOverTheBatch, "neighbours: the output of '00000'"),
        (NumbersItsRows, "order: the output of '00000'"),
        (NumbersItsRows, "order: the loss"),
        (AveragesItsLoss, "sums: the loss of a batch"),
        (CountsBatches, "sums: the count of a batch"),
        (HidesAWeight, "saving: the output of '00000'"),
        (LeavesAWeightUntrained, "gradients: the trainable parameter unused.weight gets none"),
        (SearchesSomethingElse, "search: the loss computed from the scorer"),
        (GivesNaN, "search: the loss computed from the scorer"),
        (LooksBehindMasks, "masks: the loss is the same with and without"),
        (DrawsMasksOverTheBatch, "masks: the loss of a batch with masks"),
    ],
)
def test_a_broken_promise_is_named(case, model, promise):
    with pytest.raises(CheckFailed) as failure:
        check(case, model)
    assert f"- {promise}" in str(failure.value)


def test_one_broken_promise_is_not_called_many(case):
    with pytest.raises(CheckFailed, match=r"1 promise.*\n- sums: the count[^\n]*changes by up to 2[^\n]*$"):
        check(case, CountsBatches)


def test_a_wrong_number_of_frames_is_named(case, tmp_path):
    from attune.tasks.transcribe import CtcHeadConfig, Transcribe, TranscribeConfig

    config = TranscribeConfig(head=CtcHeadConfig(layers=1, width=4))
    Transcribe.prepare(config, case[1], tmp_path)

    def build(config, task, assets):
        built = FAMILY.build(config, task, assets)
        built.model.frames = lambda samples: samples // 480 + 7
        return built

    with pytest.raises(CheckFailed, match=r"frames: what model\.frames\(\) says"):
        check_family(Family(SslConfig, build), SslConfig(), Transcribe(config, tmp_path), case[1])


def test_the_random_state_is_left_as_it_was(case):
    before = torch.get_rng_state()
    check(case, Sound)
    assert torch.equal(before, torch.get_rng_state())


def test_the_weights_that_are_checked_do_not_depend_on_what_ran_before(case):
    seen = []

    class Remembers(Sound):
        def __init__(self, labels=3):
            super().__init__(labels)
            seen.append(self.output.weight.detach().clone())

    for _ in range(2):
        torch.rand(7)
        check(case, Remembers)
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


def mixes_up_its_rows(built):
    sound = built.model.scorer

    def scorer(batch):
        made = sound(batch)
        advance = made.advance
        made.advance = lambda tokens: advance(tokens.flip(0))
        return made

    built.model.scorer = scorer
    return built


def stops_too_soon(built):
    sound = built.model.scorer

    def scorer(batch):
        made = sound(batch)
        made.limits = [3] * len(made.limits)
        return made

    built.model.scorer = scorer
    return built


class LongerPrompt:
    """A codec whose prompts have a token that targets do not begin with."""

    def __init__(self, codec):
        self.codec = codec

    def __getattr__(self, name):
        return getattr(self.codec, name)

    def prompt(self, utterance):
        return (*self.codec.prompt(utterance), 7)


def begins_with_something_else(built):
    return replace(built, codec=LongerPrompt(built.codec))


@pytest.mark.parametrize(
    ("spoil", "promise"),
    [
        (mixes_up_its_rows, "search: the loss computed from the scorer"),
        (stops_too_soon, r"prompts: '00000' may only emit 3 tokens, and its target has \d+"),
        (begins_with_something_else, "prompts: the target of '00000' does not begin with"),
    ],
)
def test_a_broken_promise_of_a_token_by_token_model_is_named(case, tmp_path, spoil, promise):
    from attune.families import whisper
    from attune.tasks.transcribe import Transcribe, TranscribeConfig

    config = whisper.WhisperConfig(weights="", window="trimmed")
    whisper.FAMILY.importer.read(config, write_whisper(tmp_path / "model"), tmp_path)
    family = Family(whisper.WhisperConfig, lambda *given: spoil(whisper.FAMILY.build(*given)))
    with pytest.raises(CheckFailed, match=promise):
        check_family(family, config, Transcribe(TranscribeConfig(), tmp_path), case[1][:2], tmp_path)


def doubles_its_loss(built):
    loss = built.model.loss
    built.model.loss = lambda batch: Loss(2 * loss(batch).total, loss(batch).count)
    return built


def hears_its_neighbours(built):
    scorer = built.model.scorer

    def shifted(batch):
        found = scorer(batch)
        found.frames += 0.1 * batch.audio.shape[0]
        return found

    built.model.scorer = shifted
    return built


@pytest.mark.parametrize("tdt", [False, True])
def test_a_sound_transducer_passes(case, tmp_path, tdt):
    check_family(toy.FAMILY, toy.Config(tdt=tdt), case[0], case[1])


@pytest.mark.parametrize(
    ("spoil", "promise"),
    [
        (doubles_its_loss, "search: the loss computed from the scorer against the model's own"),
        (hears_its_neighbours, "neighbours: the output of '00000' in a batch"),
    ],
)
def test_a_broken_promise_of_a_transducer_is_named(case, spoil, promise):
    family = Family(toy.Config, lambda *given: spoil(toy.build(*given)))
    with pytest.raises(CheckFailed, match=promise):
        check_family(family, toy.Config(), case[0], case[1])


def test_a_transducers_loss_is_that_of_all_alignments():
    model, target = random_transducer(tokens=4, sharpness=1.0), (2, 0, 0, 1)
    for length in (1, 2, 4):
        scorer = model.scorer(random_frames([length]))
        for labels in range(len(target) + 1):
            targets = TokenTargets(torch.tensor([target]), torch.tensor([labels]))
            batch = Batch(("x",), torch.zeros(1, 1), torch.ones(1), targets)
            expected = totals(scorer, max_labels=4, only=target[:labels])[target[:labels]]
            assert float(_lattice_loss(scorer, batch)) == pytest.approx(-expected, rel=1e-5)
