"""Real weights against transformers. The models come from elsewhere; without them, these tests are skipped."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import attune
from attune.decoding.search import Search, search
from attune.families.whisper import FAMILY, WhisperConfig
from attune.families.whisper.features import log_mel
from attune.families.whisper.labels import WhisperVocabulary
from attune.loading.pretrained import FORMAT, WEIGHTS
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.types import Utterance

from tiny import batch_of as padded_batch
from tiny_whisper import real

pytestmark = pytest.mark.recipe
SPOKEN = [Path(attune.__file__).parent / f"demo/audio/test-00{number}.opus" for number in range(3)]


def build(name, assets, language, **settings):
    config = WhisperConfig(weights=str(real(name)), **settings)
    weights = FAMILY.importer.read(config, real(name), assets).tensors
    built = FAMILY.build(config, Transcribe(TranscribeConfig(language=language), assets), assets)
    built.model.load_state_dict(weights)
    built.model.eval()
    return built


def theirs(name):
    from transformers import WhisperForConditionalGeneration, WhisperTokenizer

    model = WhisperForConditionalGeneration.from_pretrained(real(name), dtype=torch.float32).eval()
    return model, WhisperTokenizer.from_pretrained(real(name))


def batch_of(end):
    audio = [attune.load_audio(path) for path in SPOKEN]
    return padded_batch(
        [(path.stem, each, end(path, len(each) / 16_000)) for path, each in zip(SPOKEN, audio, strict=True)]
    )


@pytest.mark.parametrize(("name", "language"), [("whisper-tiny", "en"), ("whisper-tiny.en", None)])
def test_logits_and_transcripts_are_those_of_transformers(name, language, tmp_path):
    built, (model, tokenizer) = build(name, tmp_path, language), theirs(name)
    prompts = batch_of(lambda path, seconds: built.codec.prompt(Utterance(path.stem, seconds)))
    targets = batch_of(lambda path, seconds: built.codec.target(Utterance(path.stem, seconds, text=f"the {path.stem}")))
    features = log_mel(prompts.audio, prompts.lengths, 80, 3000)
    with torch.inference_mode():
        windows, states = built.model.encode(targets)
        logits = built.model.model.decoder(targets.tokens.ids[:, :-1], states, windows.mask())
        expected = model(input_features=features, decoder_input_ids=targets.tokens.ids[:, :-1]).logits
        settings = {"language": language, "task": "transcribe"} if language else {}
        said = tokenizer.batch_decode(model.generate(features, **settings), skip_special_tokens=True)
        found = [built.codec.read(each) for each in search(built.model.scorer(prompts), Search())]
    assert (logits - expected).abs().max() < 1e-4
    assert found == [text.strip() for text in said]


def test_a_language_that_is_not_given_is_heard_as_transformers_hears_it(tmp_path):
    built, (model, _) = build("whisper-tiny", tmp_path, None), theirs("whisper-tiny")
    prompts = batch_of(lambda path, seconds: built.codec.prompt(Utterance(path.stem, seconds)))
    with torch.inference_mode():
        heard = [prefix[1] for prefix in built.model.scorer(prompts).prefixes]
        expected = model.detect_language(log_mel(prompts.audio, prompts.lengths, 80, 3000))
    assert heard == expected.tolist()


def test_times_are_those_of_transformers(tmp_path):
    built, (model, _) = build("whisper-tiny", tmp_path, "en", timestamps=True), theirs("whisper-tiny")
    prompts = batch_of(lambda path, seconds: built.codec.prompt(Utterance(path.stem, seconds)))
    features = log_mel(prompts.audio, prompts.lengths, 80, 3000)
    with torch.inference_mode():
        found = [list(each.tokens) for each in search(built.model.scorer(prompts), Search())]
        expected = model.generate(features, language="en", task="transcribe", return_timestamps=True).tolist()
    for ours, row in zip(found, expected, strict=True):
        start = 3 if row[0] == built.model.rules.start else 0
        assert ours == [token for token in row[start:] if token != built.model.rules.end]
        assert ours[0] >= built.model.rules.first_timestamp


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Real weights as attune exports them, and what attune says with them."""
    folder, assets = tmp_path_factory.mktemp("exported"), tmp_path_factory.mktemp("assets")
    built = build("whisper-tiny", assets, "en")
    save_file(
        {name: tensor.contiguous() for name, tensor in built.model.state_dict().items()}, folder / WEIGHTS, FORMAT
    )
    FAMILY.exporters.beside(built.model, assets, folder)
    prompts = batch_of(lambda path, seconds: built.codec.prompt(Utterance(path.stem, seconds)))
    with torch.inference_mode():
        return folder, [built.codec.read(each) for each in search(built.model.scorer(prompts), Search())]


def test_a_pipeline_of_transformers_says_the_same(exported):
    from transformers import pipeline

    folder, ours = exported
    recognize = pipeline("automatic-speech-recognition", model=str(folder))
    greedy = {"num_beams": 1}  # a pipeline searches with five otherwise
    found = [recognize(attune.load_audio(path), generate_kwargs=greedy)["text"] for path in SPOKEN]
    assert [text.strip() for text in found] == ours


def test_ctranslate2_converts_it_and_says_the_same(exported, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    from ctranslate2.converters import TransformersConverter

    folder, ours = exported
    files = ["tokenizer.json", "preprocessor_config.json"]
    TransformersConverter(str(folder), copy_files=files).convert(str(tmp_path / "converted"), quantization="float32")
    model = ctranslate2.models.Whisper(str(tmp_path / "converted"), compute_type="float32", intra_threads=1)
    prompt = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    prompts = batch_of(lambda path, seconds: ())
    features = ctranslate2.StorageView.from_array(log_mel(prompts.audio, prompts.lengths, 80, 3000).numpy())
    found = model.generate(features, [prompt] * len(SPOKEN), beam_size=1)
    vocabulary = WhisperVocabulary(folder / "tokenizer.json", is_multilingual=True)
    assert [vocabulary.decode(each.sequences_ids[0]) for each in found] == ours
