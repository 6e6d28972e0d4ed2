"""Whisper for CTranslate2: what is written is compared, and what cannot be converted is refused."""

import pytest
import torch

from attune.errors import ModelError
from attune.families.whisper import FAMILY, WhisperConfig
from attune.publishing.ctranslate2 import convert_whisper
from attune.tasks.transcribe import Transcribe, TranscribeConfig

from tiny_whisper import write_whisper

pytest.importorskip("ctranslate2")


def build(folder, assets, window="full"):
    config = WhisperConfig(weights=str(folder), window=window)
    weights = FAMILY.importer.read(config, folder, assets).tensors
    built = FAMILY.build(config, Transcribe(TranscribeConfig(), assets), assets)
    built.model.load_state_dict(weights)
    return built


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_whisper(tmp_path_factory.mktemp("models") / "en")


def test_what_is_converted_finds_the_same_tokens(folder, tmp_path):
    found = convert_whisper(build(folder, tmp_path), folder, tmp_path / "converted")
    assert found.samples == 3
    assert 0 < found.largest_difference < 1e-3
    assert (tmp_path / "converted" / "model.bin").is_file()
    assert (tmp_path / "converted" / "tokenizer.json").is_file()


def test_a_model_that_is_not_the_converted_one_is_noticed(folder, tmp_path):
    built = build(folder, tmp_path)
    with torch.no_grad():
        built.model.model.encoder.layer_norm.bias.add_(0.1)
    with pytest.raises(ModelError, match="converted model differs"):
        convert_whisper(built, folder, tmp_path / "converted")


def test_a_trimmed_window_is_refused(folder, tmp_path):
    with pytest.raises(ModelError, match="trimmed"):
        convert_whisper(build(folder, tmp_path, "trimmed"), folder, tmp_path / "converted")
