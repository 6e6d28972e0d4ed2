from attune.contracts import FrameTimes, TaskModel
from attune.decoding.words import words_of
from attune.families._pieces import PieceCodec
from attune.types import Hypothesis, Word

PIECES = ("▁the", "re", "▁is", "n", "'", "t", "▁")


def built(**settings):
    def decode(tokens):
        return "".join(PIECES[token] for token in tokens).replace("▁", " ").strip()

    return TaskModel(None, PieceCodec(PIECES, lambda utterance: (), decode), "transducer", **settings)


def test_a_word_begins_with_its_first_token_and_is_as_sure_as_its_least_certain_one():
    found = Hypothesis((0, 1, 2, 3, 4, 5), -3.0, (2, 3, 10, 10, 11, 12), (0.9, 0.5, 1.0, 0.8, 0.7, 0.9))
    words = words_of(found, built(times=FrameTimes(0.08)), offset=30.0)
    assert words == (Word("there", 30.16, 30.64, 0.5), Word("isn't", 30.8, 31.36, 0.7))


def test_a_first_token_begins_a_word_even_if_it_would_not_elsewhere():
    found = Hypothesis((1, 2), -3.0, (0, 4), (0.9, 0.5))
    words = words_of(found, built(times=FrameTimes(0.04)))
    assert words == (Word("re", 0.0, 0.16, 0.9), Word("is", 0.16, 0.56, 0.5))


def test_a_space_alone_is_neither_a_word_nor_when_one_begins_nor_how_sure_it_is():
    found = Hypothesis((3, 6, 6, 5, 1, 6), -3.0, (0, 2, 3, 9, 10, 12), (0.9, 0.1, 0.2, 0.8, 0.7, 0.3))
    words = words_of(found, built(times=FrameTimes(0.04)))
    assert words == (Word("n", 0.0, 0.08, 0.9), Word("tre", 0.36, 0.48, 0.7))


def test_nothing_said_has_no_words_and_other_families_tell_none():
    assert words_of(Hypothesis((), 0.0), built(times=FrameTimes(0.04))) == ()
    assert words_of(Hypothesis((0,), 0.0), built()) == ()


def test_a_word_ends_with_its_last_token_where_the_search_knows_its_end():
    found = Hypothesis((0, 1, 2), -3.0, (2, 3, 10), (0.9, 0.5, 1.0), ends=(3, 9, 11))
    assert [word.end for word in words_of(found, built(times=FrameTimes(0.1)))] == [0.9, 1.1]
