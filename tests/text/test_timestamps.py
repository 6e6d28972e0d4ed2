import pytest

from attune.text.languages import join_texts
from attune.text.timestamps import map_between_timestamps, scale_timestamps, split_at_timestamps, strip_timestamps

TIMED = "<|0.00|> Hello there.<|1.20|><|1.40|> Bye.<|2.60|>"


def test_a_text_is_parted_at_its_times():
    assert split_at_timestamps("a<|0.50|> b") == ["a", "0.50", " b"]


def test_what_lies_between_times_is_changed_and_they_are_not():
    assert map_between_timestamps("<|0.00|>a<|1.20|>b", str.upper) == "<|0.00|>A<|1.20|>B"


def test_what_is_said_is_left_when_times_are_taken_away():
    assert strip_timestamps(TIMED, "en") == "Hello there. Bye."
    assert strip_timestamps("<|0.00|>你好<|1.00|><|1.20|>世界<|2.00|>", "zh-CN") == "你好世界"
    assert strip_timestamps("<|0.00|><|1.00|>", "en") == ""


@pytest.mark.parametrize("text", ["", " a  b ", "<|endoftext|>", "<|.2|> <1.20>"])
def test_a_text_without_times_is_left_alone(text):
    assert strip_timestamps(text, "en") == text
    assert map_between_timestamps(text, lambda whole: f"{whole}!") == f"{text}!"


def test_times_move_with_the_pace():
    assert scale_timestamps("<|0.00|> a<|1.20|><|1.5|> b<|3|>", 0.5) == "<|0.00|> a<|0.60|><|0.75|> b<|1.50|>"
    assert scale_timestamps("no times", 0.5) == "no times"


@pytest.mark.parametrize(("language", "expected"), [("en", "a b"), (None, "a b"), ("ja", "ab"), ("yue-HK", "ab")])
def test_texts_are_joined_as_their_language_is_written(language, expected):
    assert join_texts(["a ", "", " b"], language) == expected
