import json
import pickle

import pytest

from attune.errors import DataError, ModelError
from attune.text.tokenizers.characters import BLANK, UNKNOWN, CharacterTokenizer

TEXTS = ["b a", "нет", "तो"]


def test_ids_follow_the_sorted_characters_after_blank_and_unknown():
    tokenizer = CharacterTokenizer.learn(["b a", "ab"])
    assert tokenizer.characters == (" ", "a", "b")
    assert tokenizer.size == 5
    assert tokenizer.encode("ab a") == (3, 4, 2, 3)


def test_the_text_comes_back():
    tokenizer = CharacterTokenizer.learn(TEXTS)
    for text in TEXTS:
        assert BLANK not in tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_white_space_is_one_space_between_words():
    tokenizer = CharacterTokenizer.learn(["a  b\n", "\tc "])
    assert tokenizer.characters == (" ", "a", "b", "c")
    assert tokenizer.encode(" a \t b") == tokenizer.encode("a b")
    assert tokenizer.decode((2, 3, 2, 2, 4, 2)) == "a b"


def test_an_unknown_character_has_its_own_token_and_the_blank_reads_as_nothing():
    tokenizer = CharacterTokenizer.learn(["ab"])
    assert tokenizer.encode("axb") == (2, UNKNOWN, 3)
    assert tokenizer.decode((2, UNKNOWN, BLANK, 3)) == "a�b"


def test_it_is_read_back_as_it_was_saved(tmp_path):
    tokenizer = CharacterTokenizer.learn(TEXTS)
    tokenizer.save(tmp_path / "task")
    assert CharacterTokenizer.load(tmp_path / "task") == tokenizer
    assert pickle.loads(pickle.dumps(tokenizer)).encode("нет") == tokenizer.encode("нет")


def test_the_fingerprint_is_of_the_characters_not_of_the_order_of_the_texts():
    same = CharacterTokenizer.learn(reversed(TEXTS))
    assert same.fingerprint == CharacterTokenizer.learn(TEXTS).fingerprint
    assert same.fingerprint != CharacterTokenizer.learn(["b a", "нет", "та"]).fingerprint


def test_no_text_at_all_is_refused():
    with pytest.raises(DataError, match="every transcript is empty"):
        CharacterTokenizer.learn(["", "  "])


@pytest.mark.parametrize("content", ["{", "[]", '["a", "a"]', '["ab"]', '{"a": 1}', "[1]"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / CharacterTokenizer.FILE).write_text(content)
    with pytest.raises(ModelError, match=r"characters\.json"):
        CharacterTokenizer.load(tmp_path)


def test_the_file_is_a_readable_list(tmp_path):
    CharacterTokenizer.learn(["нет"]).save(tmp_path)
    assert json.loads((tmp_path / CharacterTokenizer.FILE).read_text(encoding="utf-8")) == ["е", "н", "т"]
    assert "нет"[1] in (tmp_path / CharacterTokenizer.FILE).read_text(encoding="utf-8")
