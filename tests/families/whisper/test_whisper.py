"""The family as a whole, with a random Whisper of a few thousand weights."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from attune.audio.masking import draw_masks
from attune.audio.settings import MasksConfig
from attune.batches.load import Reader
from attune.corpora import open_manifest
from attune.decoding.predict import prepare_for_decoding
from attune.decoding.search import Search, search
from attune.errors import ConfigError, DataError
from attune.families.whisper import FAMILY, WhisperConfig
from attune.families.whisper.features import log_mel
from attune.families.whisper.model import NOT_LEARNED
from attune.recordings import Hints
from attune.tasks.classify import Classify, ClassifyConfig
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.testing import check_family, make_corpus
from attune.testing.data import speak
from attune.types import Hypothesis, Prediction, ScoringContext, Utterance

from tiny import batch_of
from tiny_whisper import MULTILINGUAL, write_whisper


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return list(open_manifest(make_corpus(folder, utterances=8), folder / "index"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    return {"en": write_whisper(made / "en"), "many": write_whisper(made / "many", MULTILINGUAL, mels=128)}


def build(folder, assets, language=None, **settings):
    config = WhisperConfig(weights=str(folder), **settings)
    weights = FAMILY.importer.read(config, folder, assets).tensors
    built = FAMILY.build(config, Transcribe(TranscribeConfig(language=language), assets), assets)
    built.model.load_state_dict(weights)
    return built


def transformers_model(folder):
    from transformers import WhisperForConditionalGeneration

    return WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def tones(*seconds):
    return [speak("zero one two three four five six" * 5, seed=7)[: round(16_000 * each)] for each in seconds]


def prompted(built, recordings, utterance):
    return batch_of([(str(row), each, built.codec.prompt(utterance)) for row, each in enumerate(recordings)])


@pytest.mark.parametrize("window", ["full", "trimmed"])
def test_keeps_every_promise(folders, corpus, tmp_path, window):
    build(folders["en"], tmp_path)
    task = Transcribe(TranscribeConfig(), tmp_path)
    check_family(FAMILY, WhisperConfig(weights="", window=window), task, corpus[:3], tmp_path)


@pytest.mark.parametrize("window", ["full", "trimmed"])
def test_masks_of_time_hide_what_is_heard_and_not_the_silence_after_it(folders, tmp_path, window):
    built = build(folders["en"], tmp_path, window=window)
    samples = np.concatenate(tones(1.0, 2.0))
    plain = batch_of([("short", samples[:16_000], (1, 2)), ("packed", samples, (1, 2))])
    settings = MasksConfig(time_masks=4, time_part=1.0, frequency_masks=0)
    heard = []
    built.model.model.encoder.register_forward_pre_hook(lambda _, given: heard.append(given[0]))
    built.model.encode(plain)
    built.model.encode(replace(plain, masks=draw_masks((1, 2), settings)))
    is_hidden = (heard[0] != heard[1]).all(1)  # (B, F)
    assert not is_hidden[0, 100:].any() and not is_hidden[1, 300:].any()
    assert is_hidden[0, :100].sum() > 20 and is_hidden[1, :300].sum() > 60
    assert not heard[1].transpose(1, 2)[is_hidden].any()


def test_loss_and_logits_are_those_of_transformers(folders, corpus, tmp_path):
    built = build(folders["many"], tmp_path, "be")
    batch, _ = Reader(corpus, built.codec.target).read([0, 1, 2])
    theirs = transformers_model(folders["many"])
    labels = built.model.labels(batch)
    with torch.no_grad():
        loss = built.model.eval().loss(batch)
        windows, states = built.model.encode(batch)
        logits = built.model.model.decoder(batch.tokens.ids[:, :-1], states, windows.mask())
        features = log_mel(batch.audio, batch.lengths, 128, 3000)
        expected = theirs(input_features=features, decoder_input_ids=batch.tokens.ids[:, :-1], labels=labels)
    assert (logits - expected.logits).abs().max() < 1e-5
    assert loss.count == (labels != NOT_LEARNED).sum() == sum(len(built.codec.target(each)) - 1 for each in corpus[:3])
    assert float(loss.total / loss.count) == pytest.approx(float(expected.loss), rel=1e-5)


def test_a_row_may_ask_for_a_translation(folders, corpus, tmp_path):
    built = build(folders["many"], tmp_path)
    row = replace(corpus[0], language="be")
    asked = replace(row, labels={"speech_task": "translate"})
    transcribed, translated = (built.codec.describe(built.codec.prompt(each)) for each in (row, asked))
    assert "<|transcribe|>" in transcribed and "<|translate|>" in translated
    with pytest.raises(DataError, match="Expected transcribe or translate"):
        built.codec.prompt(replace(row, labels={"speech_task": "explain"}))
    with pytest.raises(DataError, match="English-only"):
        build(folders["en"], tmp_path).codec.prompt(replace(asked, language=None))


def test_prompts_and_pads_are_not_learned_and_the_end_is(folders, corpus, tmp_path):
    built = build(folders["en"], tmp_path)
    short, long = (replace(corpus[0], text=text) for text in ("ab", "abcdef"))
    long = replace(long, labels={"prompt": "before"})
    batch, _ = Reader([short, long], built.codec.target).read([0, 1])
    labels = built.model.labels(batch)
    end, start = built.model.rules.end, built.model.rules.start
    for row, utterance in zip(labels, (short, long), strict=True):
        target = built.codec.target(utterance)
        assert row[row != NOT_LEARNED].tolist() == [*target[target.index(start) + 1 :]]
        assert row[row != NOT_LEARNED][-1] == end
    assert (labels[0] == end).sum() == 1  # pads are not


@pytest.mark.parametrize("normalizer", ["basic", "none"])
def test_times_in_a_text_are_learned_or_left_out_and_are_never_scored(folders, tmp_path, normalizer):
    build(folders["many"], tmp_path)
    task = Transcribe(TranscribeConfig(language="th", normalizer=normalizer), tmp_path)
    utterance = Utterance("t", 3.0, text="<|0.00|> สวัสดี<|1.20|><|1.40|> ครับ<|2.60|>")
    for has_times in (True, False):
        built = FAMILY.build(WhisperConfig(weights="", timestamps=has_times), task, tmp_path)
        target = built.codec.target(utterance)
        assert [token - 268 for token in target if token >= 268] == ([0, 60, 70, 130] if has_times else [])
        perfect = Prediction("t", built.codec.read(Hypothesis(target, 0.0)), task.reference(utterance))
        assert task.score([perfect], ScoringContext("test", tmp_path, {}, {}.__getitem__)).values["wer"].value == 0


@pytest.mark.parametrize("window", ["full", "trimmed"])
@pytest.mark.parametrize("kind", ["greedy", "beam"])
def test_predictions_do_not_depend_on_the_batch(folders, corpus, tmp_path, window, kind):
    built = build(folders["en"], tmp_path, window=window)
    recordings = tones(0.3, 5.5, 1.0, 7.9)
    settings = Search(kind, **({"beam": 3} if kind == "beam" else {}))
    with torch.inference_mode():
        scorers = [built.model.eval().scorer(prompted(built, [each], corpus[0])) for each in recordings]
        alone = [search(scorer, settings)[0] for scorer in scorers]
        together = search(built.model.scorer(prompted(built, recordings, corpus[0])), settings)
    assert [each.tokens for each in alone] == [each.tokens for each in together]
    assert [each.score for each in alone] == pytest.approx([each.score for each in together], rel=1e-6)
    assert len({each.tokens for each in alone}) > 1


@pytest.mark.parametrize("window", ["full", "trimmed"])
def test_predictions_in_int8_do_not_depend_on_the_batch(folders, corpus, tmp_path, window):
    built = prepare_for_decoding(build(folders["en"], tmp_path, window=window), Search(precision="int8"))
    recordings = tones(0.3, 5.5, 1.0, 7.9)
    with torch.inference_mode():
        scorers = [built.model.scorer(prompted(built, [each], corpus[0])) for each in recordings]
        alone = [search(scorer, Search())[0] for scorer in scorers]
        together = search(built.model.scorer(prompted(built, recordings, corpus[0])), Search())
    assert [each.tokens for each in alone] == [each.tokens for each in together]
    assert [each.score for each in alone] == pytest.approx([each.score for each in together], rel=1e-6)


def test_int8_computes_every_product_by_weights_and_leaves_the_model_as_it_was(folders, corpus, tmp_path):
    built = build(folders["en"], tmp_path)
    quantized = prepare_for_decoding(built, Search(precision="int8")).model
    assert not any(isinstance(each, torch.nn.Linear) for each in quantized.modules())
    assert quantized.model.decoder.output is not None
    assert built.model.model.decoder.output is None
    batch = prompted(built, tones(2.0), corpus[0])
    with torch.inference_mode():
        exact, near = (each.scorer(batch).advance(batch.tokens.ids) for each in (built.model, quantized))
    assert 0 < (exact - near).abs().max() < 0.3


def test_greedy_says_what_transformers_says(folders, corpus, tmp_path):
    built = build(folders["many"], tmp_path, "be")
    from transformers import GenerationConfig

    theirs = transformers_model(folders["many"])
    theirs.generation_config = GenerationConfig.from_pretrained(tmp_path)
    theirs.generation_config.suppress_tokens = list(built.model.rules.never)  # times, and numbers without a token
    recordings = tones(0.4, 1.3)
    batch = prompted(built, recordings, corpus[0])
    features = log_mel(batch.audio, batch.lengths, 128, 3000)
    with torch.inference_mode():
        ours = search(built.model.eval().scorer(batch), Search())
        found = theirs.generate(features, language="be", task="transcribe", max_new_tokens=12)
    for row, hypothesis in zip(found.tolist(), ours, strict=True):
        row = row[4:] if row[0] == built.model.rules.start else row
        assert list(hypothesis.tokens[:12]) == row[: len(hypothesis.tokens[:12])]


def test_a_language_left_open_is_detected_for_each_utterance_alone(folders, corpus, tmp_path):
    built = build(folders["many"], tmp_path)
    recordings = tones(0.4, 9.0, 2.0)
    with torch.inference_mode():
        together = built.model.eval().scorer(prompted(built, recordings, corpus[0])).prefixes
        alone = [built.model.scorer(prompted(built, [each], corpus[0])).prefixes[0] for each in recordings]
    assert together == alone
    assert all(row[1] in built.model.rules.languages for row in together)


def test_a_rows_language_goes_before_the_tasks(folders, corpus, tmp_path):
    built = build(folders["many"], tmp_path, "be")
    no = replace(corpus[0], language="no")
    assert built.codec.target(corpus[0])[1] != built.codec.target(no)[1] == built.codec.prompt(no)[1]


def test_checkpointing_changes_memory_and_not_gradients(folders, corpus, tmp_path):
    def gradients(**settings):
        built = build(folders["en"], tmp_path, **settings)
        batch, _ = Reader(corpus, built.codec.target).read([0, 1])
        built.model.train().loss(batch).total.backward()
        return {name: weight.grad for name, weight in built.model.named_parameters() if weight.requires_grad}

    plain, saving = gradients(), gradients(gradient_checkpointing=True)
    assert all(torch.equal(plain[name], saving[name]) for name in plain)


@pytest.mark.parametrize("window", ["full", "trimmed"])
def test_accumulated_gradients_are_those_of_one_batch(folders, corpus, tmp_path, window):
    built = build(folders["en"], tmp_path, window=window)
    built.model.double()  # what is left is no rounding

    def gradients(*parts):
        built.model.zero_grad()
        counts = []
        for rows in parts:
            loss = built.model.loss(Reader(corpus, built.codec.target).read(rows)[0])
            loss.total.backward()
            counts.append(int(loss.count))
        return [weight.grad / sum(counts) for weight in built.model.parameters() if weight.requires_grad]

    at_once, accumulated = gradients(range(4)), gradients([0], [1, 2], [3])
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(at_once, accumulated, strict=True))


def test_trains_in_bfloat16_with_a_loss_in_float32(folders, corpus, tmp_path):
    built = build(folders["en"], tmp_path, window="trimmed")
    batch, _ = Reader(corpus, built.codec.target).read([0, 1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = built.model.loss(batch).total
    narrow.backward()
    assert narrow.dtype == torch.float32
    assert narrow.item() == pytest.approx(built.model.loss(batch).total.item(), rel=0.05)


def test_what_cannot_be_learned_or_heard_is_named(folders, corpus, tmp_path):
    built = build(folders["en"], tmp_path)
    with pytest.raises(DataError, match=r"manifest.jsonl:1.*is 31.0 s long; Whisper takes 30 s"):
        built.codec.target(replace(corpus[0], seconds=31.0))
    with pytest.raises(DataError, match="is 31.0 s long"):
        built.codec.prompt(replace(corpus[0], seconds=31.0))
    with pytest.raises(
        DataError, match=r"manifest.jsonl:1: utterance '00000' cannot be used for training. The text has 503"
    ):
        built.codec.target(replace(corpus[0], text="x" * 500))


def test_limits_are_a_function_of_the_own_audio(folders, corpus, tmp_path):
    built = build(folders["en"], tmp_path)
    with torch.inference_mode():
        scorer = built.model.eval().scorer(prompted(built, tones(0.5, 10.0), corpus[0]))
    assert scorer.limits == [16 + 25, 46]  # 48 positions, two of them told


def test_settings_that_the_model_cannot_follow_are_refused(folders, tmp_path):
    with pytest.raises(ConfigError, match="task.language: An English-only"):
        build(folders["en"], tmp_path, "be")
    with pytest.raises(ConfigError, match="this one is English-only"):
        build(folders["en"], tmp_path, speech_task="translate")
    with pytest.raises(ConfigError, match="has no language 'xx'"):
        build(folders["many"], tmp_path / "..", "xx")


def test_a_task_without_text_is_refused(folders, corpus, tmp_path):
    build(folders["en"], tmp_path)
    config = ClassifyConfig(label="register")
    Classify.prepare(config, corpus, tmp_path)
    with pytest.raises(ConfigError, match="Whisper cannot classify"):
        FAMILY.build(WhisperConfig(weights=""), Classify(config, tmp_path), tmp_path)


def test_learns_to_write(folders, corpus, tmp_path):
    built = build(folders["en"], tmp_path, window="trimmed")
    optimizer = torch.optim.Adam(built.model.parameters(), lr=1e-2)
    few = [replace(corpus[0], text="ab"), replace(corpus[1], text="ca")]
    batch, _ = Reader(few, built.codec.target).read(np.arange(2))
    for _ in range(60):
        optimizer.zero_grad()
        loss = built.model.loss(batch)
        (loss.total / loss.count).backward()
        optimizer.step()
    prompts, _ = Reader(few, built.codec.prompt).read(np.arange(2))
    with torch.inference_mode():
        found = search(built.model.eval().scorer(prompts), Search())
    assert [built.codec.read(each) for each in found] == ["ab", "ca"]


def test_configuring_does_not_load_torch():
    command = "import sys, attune.families.whisper; sys.exit('torch' in sys.modules or 'tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command]).returncode == 0


@pytest.mark.parametrize(
    ("task_language", "row_language", "speech_task", "expected"),
    [
        ("en", None, "transcribe", "a b"),
        ("th", None, "transcribe", "ab"),
        ("en", "th-TH", "transcribe", "ab"),
        ("th", None, "translate", "a b"),
        (None, None, "transcribe", "a b"),
    ],
)
def test_pieces_are_joined_as_their_language_is_written(
    folders, tmp_path, task_language, row_language, speech_task, expected
):
    built = build(folders["many"], tmp_path, task_language, speech_task=speech_task)
    assert built.codec.join(["a", "", "b"], Utterance("long", 45.0, language=row_language)) == expected


@pytest.mark.parametrize(("asked", "expected"), [({"translate": True}, "a b"), ({}, "ab")])
def test_pieces_of_a_recording_that_is_to_be_translated_are_joined_as_english(folders, tmp_path, asked, expected):
    built = build(folders["many"], tmp_path)
    assert built.codec.join(["a", "b"], Hints("th", **asked).as_utterance()) == expected
