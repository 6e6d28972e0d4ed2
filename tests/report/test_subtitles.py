from itertools import pairwise

import pytest

from attune.report.subtitles import SubtitleRules, cut_cues
from attune.types import TextSegment, Word

SPEECH = (
    "So the first thing we did was measure it, and what we found surprised everyone in the room. "
    "Nobody had expected that a model this small would keep up with the others for as long as it did."
)


def spoken(text, start=0.0, rate=0.3, pauses=()):
    words, place = [], start
    for number, each in enumerate(text.split()):
        place += 2.0 if number in pauses else 0.0
        words.append(Word(each, round(place, 3), round(place + 0.9 * rate, 3), 1.0))
        place += rate
    return words


def whole(words):
    return TextSegment(words[0].start, words[-1].end + 1, " ".join(word.text for word in words))


@pytest.mark.parametrize("rate", [0.12, 0.3, 0.9])
def test_cues_keep_to_the_rules_and_lose_no_word(rate):
    words, rules = spoken(SPEECH, rate=rate), SubtitleRules()
    cues = cut_cues([whole(words)], words)
    assert " ".join(cue.text.replace("\n", " ") for cue in cues) == SPEECH
    for cue in cues:
        lines = cue.text.split("\n")
        assert len(lines) <= rules.lines and max(map(len, lines)) <= rules.line_characters
        assert 0 < cue.end - cue.start <= rules.max_seconds
    for cue, following in pairwise(cues):
        assert cue.end <= following.start


@pytest.mark.parametrize("segments", [[], [TextSegment(0.0, 4.1, "")]])
def test_a_recording_without_speech_has_no_cue(segments):
    assert cut_cues(segments, []) == []


def test_a_sentence_and_a_pause_end_a_cue():
    words = spoken("Yes. We can go on after this break", pauses=(5,))
    texts = [cue.text for cue in cut_cues([whole(words)], words)]
    assert texts == ["Yes.", "We can go on", "after this break"]


def test_an_abbreviation_ends_no_cue():
    words = spoken("We asked Mr. Dashwood at 9 a.m. about it. He left.", rate=0.5)
    assert [cue.text.replace("\n", " ") for cue in cut_cues([whole(words)], words)] == [
        "We asked Mr. Dashwood at 9 a.m. about it.",
        "He left.",
    ]


def test_a_full_cue_ends_after_a_clause():
    words = spoken(SPEECH.split(".")[0])
    first = cut_cues([whole(words)], words)[0]
    assert first.text == "So the first thing we did was measure it,"


def test_a_short_cue_stays_long_enough_to_be_read_but_not_into_the_next():
    alone = cut_cues([TextSegment(1.0, 1.2, "Go")], [Word("Go", 1.0, 1.2, 1.0)])
    assert alone[0].end == pytest.approx(1.833)
    words = [Word("Go.", 1.0, 1.2, 1.0), Word("Stop.", 1.5, 1.9, 1.0)]
    first, second = cut_cues([whole(words)], words)
    assert first.end == pytest.approx(1.5 - 1 / 12, abs=0.001) and second.start == 1.5


def test_words_without_times_share_those_of_their_segment():
    cues = cut_cues([TextSegment(10.0, 20.0, SPEECH)], ())
    assert len(cues) > 2 and cues[0].start == 10.0 and cues[-1].end <= 20.0
    assert " ".join(cue.text.replace("\n", " ") for cue in cues) == SPEECH


def test_a_script_without_spaces_is_cut_between_characters():
    text = "語" * 100
    cues = cut_cues([TextSegment(0.0, 20.0, text)], [Word(text, 0.0, 20.0, 1.0)])
    assert "".join(cue.text.replace("\n", "") for cue in cues) == text
    assert max(len(line) for cue in cues for line in cue.text.split("\n")) <= 42


def test_a_word_between_two_segments_or_after_the_last_is_in_the_cues_too():
    words = [
        Word("so", 0.1, 0.3, 1.0),
        Word("it", 1.05, 1.2, 1.0),
        Word("is", 2.1, 2.2, 1.0),
        Word("now", 3.0, 3.1, 1.0),
    ]
    segments = [TextSegment(0.0, 1.0, "so it"), TextSegment(2.0, 3.0, "is now")]
    cues = cut_cues(segments, words)
    assert [cue.text for cue in cues] == ["so it", "is now"]
