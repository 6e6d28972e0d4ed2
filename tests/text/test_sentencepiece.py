import pickle

import pytest

from attune.errors import DataError, ModelError
from attune.text.tokenizers.characters import BLANK, UNKNOWN
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer

TEXTS = ["the cat sat on the mat", "the dog ran on and on", "नमस्ते दुनिया", "раз'яднаць", "東京 タワー"] * 3


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def pieces(request):
    return SentencePieceTokenizer.learn(TEXTS, request.param, 44)


def test_the_text_comes_back_and_no_token_is_the_blank(pieces):
    for text in TEXTS:
        ids = pieces.encode(text)
        assert not {BLANK, UNKNOWN} & set(ids)
        assert pieces.decode(ids) == text


def test_the_vocabulary_has_the_size_asked_for_blank_included(pieces):
    assert pieces.size == 44
    assert max(token for text in TEXTS for token in pieces.encode(text)) < 44


def test_the_blank_reads_as_nothing_and_the_unknown_as_a_replacement_character(pieces):
    cat = pieces.encode("the cat")
    assert pieces.decode((BLANK, *cat, BLANK)) == "the cat"
    assert UNKNOWN in pieces.encode("the ñ")
    assert pieces.decode(pieces.encode("the ñ")) == "the �"


def test_short_words_alone_are_text_enough():
    pieces = SentencePieceTokenizer.learn(["go", "stop", "top"] * 5, "bpe", 10)
    assert pieces.decode(pieces.encode("stop")) == "stop"


def test_text_is_not_normalized_on_the_way():
    pieces = SentencePieceTokenizer.learn(["ﬁne ＡＢＣ Ⅷ"], "bpe", 14)
    assert pieces.decode(pieces.encode("ﬁne ＡＢＣ Ⅷ")) == "ﬁne ＡＢＣ Ⅷ"


def test_the_longest_transcript_is_learned_from_too():
    pieces = SentencePieceTokenizer.learn(["ab " * 3000 + "xyz"], "bpe", 10)
    assert UNKNOWN not in pieces.encode("xyz")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_training_twice_gives_the_same_bytes(kind):
    assert (
        SentencePieceTokenizer.learn(TEXTS, kind, 44).model == SentencePieceTokenizer.learn(iter(TEXTS), kind, 44).model
    )


def test_it_is_read_back_as_it_was_saved(pieces, tmp_path):
    pieces.save(tmp_path / "task")
    assert [path.name for path in (tmp_path / "task").iterdir()] == ["tokenizer.model"]
    loaded = SentencePieceTokenizer.load(tmp_path / "task")
    assert loaded.fingerprint == pieces.fingerprint
    assert pickle.loads(pickle.dumps(loaded)).encode("the cat") == pieces.encode("the cat")


def test_the_fingerprint_tells_vocabularies_of_one_size_apart():
    prints = {
        SentencePieceTokenizer.learn(TEXTS, "bpe", 44).fingerprint,
        SentencePieceTokenizer.learn([*TEXTS[:-1], "a rat"], "bpe", 44).fingerprint,
    }
    assert len(prints) == 2


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_too_large_a_vocabulary_is_answered_with_the_largest_possible(kind):
    with pytest.raises(DataError, match="Use at most") as refusal:
        SentencePieceTokenizer.learn(TEXTS, kind, 5000)
    largest = int(str(refusal.value).rstrip(".").rsplit(" ", 1)[-1])
    assert SentencePieceTokenizer.learn(TEXTS, kind, largest).size == largest


def test_too_small_a_vocabulary_is_answered_with_the_smallest_possible():
    with pytest.raises(DataError, match="Use at least") as refusal:
        SentencePieceTokenizer.learn(TEXTS, "bpe", 5)
    smallest = int(str(refusal.value).rstrip(".").rsplit(" ", 1)[-1])
    assert SentencePieceTokenizer.learn(TEXTS, "bpe", smallest).size == smallest


def test_no_text_at_all_is_refused():
    with pytest.raises(DataError, match="every transcript is empty"):
        SentencePieceTokenizer.learn(["", " "], "bpe", 44)


@pytest.mark.parametrize("content", [b"", b"not a model"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / SentencePieceTokenizer.FILE).write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizer\.model"):
        SentencePieceTokenizer.load(tmp_path)


def test_training_is_quiet(capfd):
    SentencePieceTokenizer.learn(TEXTS, "unigram", 44)
    assert capfd.readouterr() == ("", "")


def test_a_model_with_bytes_that_are_no_text_is_named(tmp_path, pieces):
    last = pieces.pieces[-1].encode()
    at = pieces.model.rindex(last)
    (tmp_path / "tokenizer.model").write_bytes(pieces.model[:at] + b"\xff" * len(last) + pieces.model[at + len(last) :])
    with pytest.raises(ModelError, match=r"Cannot read the tokenizer .*tokenizer\.model: 'utf-8' codec"):
        SentencePieceTokenizer.load(tmp_path)


def test_a_tokenizer_that_is_not_there_or_is_not_attunes_is_named_with_how_to_train_one(tmp_path, pieces):
    with pytest.raises(ModelError, match=r"tokenizer\.model does not exist\. .*: attune tokenizer DATA --to FILE"):
        SentencePieceTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(pieces.without_blank())
    with pytest.raises(ModelError, match=r"was not written by attune: .*: attune tokenizer DATA --to FILE"):
        SentencePieceTokenizer.load(tmp_path)
