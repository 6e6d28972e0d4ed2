import numpy as np

from attune.audio.vad import Span, SpeechFrames
from attune.decoding.pauses import snap_to_pauses, without_strays
from attune.types import Word


def speech(*spans, length=300):
    found = np.zeros(length, np.bool_)
    for start, end in spans:
        found[start:end] = True
    return SpeechFrames(np.where(found, -20.0, -60.0), found)


def edges(words):
    return [(word.start, word.end) for word in words]


def test_words_reach_to_the_pauses_around_them():
    words = [Word("one", 0.60, 0.63, 0.9), Word("two", 1.50, 1.56, 0.8)]
    assert edges(snap_to_pauses(words, speech((50, 90), (140, 180)))) == [(0.5, 0.9), (1.4, 1.8)]
    shifted = [Word(each.text, each.start + 10, each.end + 10, each.confidence) for each in words]
    assert edges(snap_to_pauses(shifted, speech((50, 90), (140, 180)), 10.0)) == [(10.5, 10.9), (11.4, 11.8)]


def test_words_without_a_pause_meet_before_the_first_token_of_the_second():
    words = [Word("one", 0.60, 0.63, 0.9), Word("two", 0.81, 0.84, 0.8)]
    frames = speech((50, 110))
    assert edges(snap_to_pauses(words, frames)) == [(0.5, 0.69), (0.69, 1.1)]
    frames.levels[73:75] = -30.0  # quieter, not silent
    assert edges(snap_to_pauses(words, frames)) == [(0.5, 0.73), (0.73, 1.1)]
    touching = [Word("one", 0.60, 0.80, 0.9), Word("two", 0.80, 0.84, 0.8)]
    assert edges(snap_to_pauses(touching, speech((50, 110)))) == [(0.5, 0.8), (0.8, 1.1)]


def test_a_breath_before_a_word_is_not_part_of_it():
    words = [Word("six", 0.70, 0.88, 0.9)]
    assert edges(snap_to_pauses(words, speech((26, 46), (59, 100)))) == [(0.59, 1.0)]
    assert edges(snap_to_pauses(words, speech((45, 62), (69, 100)))) == [(0.45, 1.0)]  # a sound, then its closure


def test_a_token_that_came_late_does_not_make_a_word_last_into_the_pause():
    words = [Word("one", 0.55, 0.97, 0.9), Word("two", 1.50, 1.60, 0.8)]
    assert edges(snap_to_pauses(words, speech((50, 90), (140, 180))))[0] == (0.5, 0.9)


def test_a_word_that_attention_has_long_before_it_is_there_starts_after_the_pause():
    words = [Word("one", 0.5, 0.9, 0.9), Word("two", 0.9, 1.8, 0.8)]
    assert edges(snap_to_pauses(words, speech((50, 90), (150, 180)), reach=50)) == [(0.5, 0.9), (1.5, 1.8)]


def test_audio_that_begins_and_ends_in_speech_has_its_own_edges():
    assert edges(snap_to_pauses([Word("one", 0.1, 0.13, 1.0)], speech((0, 40), length=40))) == [(0.0, 0.4)]
    assert snap_to_pauses([], speech((0, 4), length=4)) == ()


def test_other_speech_far_from_a_word_is_not_part_of_it():
    assert edges(snap_to_pauses([Word("one", 1.5, 1.6, 1.0), Word("two", 2.8, 2.85, 1.0)], speech((0, 300)))) == [
        (1.5, 2.2),
        (2.62, 3.0),
    ]


def test_words_of_one_frame_follow_one_another():
    words = [Word(name, 1.2, 1.2, 1.0) for name in ("one", "two", "three")]
    assert edges(snap_to_pauses(words, speech((100, 150))))[:2] == [(1.0, 1.2), (1.2, 1.21)]
    assert edges(snap_to_pauses(words, speech((100, 150))))[2] == (1.21, 1.5)


def test_a_long_pause_is_inside_no_word():
    word, tokens = Word("stop", 0.4, 1.8, 0.3), [Span(0.4, 0.43), Span(0.5, 0.53), Span(0.6, 0.63), Span(1.77, 1.8)]
    assert edges([without_strays(word, tokens, speech((38, 65), (150, 190)).is_speech)]) == [(0.4, 0.63)]
    assert without_strays(word, tokens, speech((38, 160), (169, 190)).is_speech) == word  # a closure is none
    assert without_strays(word, tokens[:1], speech().is_speech) == word
