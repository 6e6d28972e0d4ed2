import pytest

from attune.errors import ConfigError, ModelError
from attune.text import tokenizers

TEXTS = ["the cat sat on the mat", "the dog ran on and on"]


@pytest.mark.parametrize(("kind", "vocabulary"), [("characters", None), ("unigram", 18), ("bpe", 30)])
def test_every_kind_is_trained_saved_and_loaded_from_its_folder(tmp_path, kind, vocabulary):
    trained = tokenizers.train(kind, TEXTS, tmp_path / "task", vocabulary)
    loaded = tokenizers.load(tmp_path / "task")
    assert loaded == trained
    assert loaded.decode(loaded.encode("the mat")) == "the mat"


def test_training_another_kind_replaces_the_one_before(tmp_path):
    tokenizers.train("characters", TEXTS, tmp_path)
    pieces = tokenizers.train("bpe", TEXTS, tmp_path, 30)
    assert tokenizers.load(tmp_path).fingerprint == pieces.fingerprint


def test_sentencepiece_needs_a_size(tmp_path):
    with pytest.raises(ConfigError, match="bpe tokens need a vocabulary size"):
        tokenizers.train("bpe", TEXTS, tmp_path)


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(ModelError, match="has no tokenizer"):
        tokenizers.load(tmp_path)
