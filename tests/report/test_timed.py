import html
import re
from datetime import timedelta

import pytest

from attune.report.timed import TimedText, timed_text
from attune.types import TextSegment, Word

WORDS = [
    Word("Good", 3661.0, 3661.4, 0.9),
    Word('"morning",', 3661.5, 3662.0, 0.75),
    Word("<all>", 3664.0, 3664.5, 0.5),
]
RECORDING = TimedText("my talk", [TextSegment(3661.0, 3665.0, 'Good "morning", <all>')], WORDS, seconds=3670.0)


def test_captions_count_hours_and_leave_out_silence():
    quiet = TimedText("x", [TextSegment(0, 1.5, ""), TextSegment(3661.0004, 3663.25, "one two")], ())
    assert timed_text(".srt", quiet) == "1\n01:01:01,000 --> 01:01:03,250\none two\n"
    assert timed_text(".vtt", quiet) == "WEBVTT\n\n01:01:01.000 --> 01:01:03.250\none two\n"


def test_subrip_is_read_by_another_library():
    srt = pytest.importorskip("srt")
    cues = list(srt.parse(timed_text(".srt", RECORDING)))
    assert [cue.content for cue in cues] == ['Good "morning",', "<all>"]
    assert cues[0].start == timedelta(hours=1, minutes=1, seconds=1) and cues[1].index == 2


def test_webvtt_is_read_by_another_library(tmp_path):
    webvtt = pytest.importorskip("webvtt")
    (tmp_path / "x.vtt").write_text(timed_text(".vtt", RECORDING))
    cues = webvtt.read(tmp_path / "x.vtt").captions
    assert [html.unescape(cue.text) for cue in cues] == ['Good "morning",', "<all>"]
    assert cues[0].start == "01:01:01.000"


def test_textgrid_is_read_by_another_library(tmp_path):
    textgrid = pytest.importorskip("praatio.textgrid")
    letters = [Word(each, 3661.0 + 0.1 * place, 3661.1 + 0.1 * place, 1.0) for place, each in enumerate("Good")]
    (tmp_path / "x.TextGrid").write_text(timed_text(".textgrid", TimedText("x", [], WORDS, letters, 3670.0)))
    found = textgrid.openTextgrid(tmp_path / "x.TextGrid", includeEmptyIntervals=False)
    assert found.tierNames == ("words", "characters") and found.maxTimestamp == 3670.0
    words = [(each.label, each.start, each.end) for each in found.getTier("words").entries]
    assert words == [(word.text, word.start, word.end) for word in WORDS]


def test_a_textgrid_has_every_word_and_no_interval_without_length():
    """Attention may give a word no time at all, and rounding must leave nothing of nothing at the end."""
    words = [Word("so", 0.2, 0.2, 0.9), Word("it", 0.2, 0.2, 0.9), Word("is", 0.1, 1.2343, 0.9)]
    written = timed_text(".textgrid", TimedText("x", [], words, seconds=1.2343))
    places = [float(each) for each in re.findall(r"xm(?:in|ax) = ([\d.]+)\n {12}", written)]
    assert [each for each in re.findall(r'text = "(.*)"', written) if each] == ["so", "it", "is"]
    pairs = list(zip(places[::2], places[1::2], strict=True))
    assert all(start < end for start, end in pairs) and pairs[-1] == (0.202, 1.234)


def test_a_textgrid_is_as_long_as_what_was_decoded():
    written = timed_text(".textgrid", TimedText("x", [TextSegment(0.0, 3.5, "so")], [Word("so", 0.2, 0.5, 0.9)]))
    assert re.findall(r"xmax = ([\d.]+)", written) == ["3.500", "3.500", "0.200", "0.500", "3.500"]


def test_ctm_has_a_line_for_each_word():
    lines = timed_text(".ctm", RECORDING).splitlines()
    assert lines[0] == "my_talk 1 3661.000 0.400 Good 0.9000" and len(lines) == 3


def test_words_without_text_leave_no_line_and_no_cue():
    words = [Word("so", 0.2, 0.5, 0.9), Word("", 0.5, 0.6, 0.9), Word(" ", 3.0, 3.1, 0.9)]
    quiet = TimedText("x", [TextSegment(0.0, 1.0, "so"), TextSegment(3.0, 4.0, "it is")], words)
    assert timed_text(".ctm", quiet) == "x 1 0.200 0.300 so 0.9000\n"
    assert timed_text(".srt", quiet).splitlines()[2::4] == ["so", "it is"]


def test_ass_lights_up_word_by_word():
    dialogue = [line for line in timed_text(".ass", RECORDING).splitlines() if line.startswith("Dialogue")]
    assert dialogue[0].startswith("Dialogue: 0,1:01:01.00,1:01:02.00,Default")
    assert re.sub(r"\{.*?\}", "", dialogue[0]).endswith(',Good "morning",') and r"{\k50}Good" in dialogue[0]


def test_ass_lights_up_a_word_with_the_mark_beside_it():
    words = [Word("- So –", 0.0, 0.3, 1.0), Word("it", 0.5, 0.6, 1.0)]
    written = timed_text(".ass", TimedText("x", [TextSegment(0.0, 0.6, "- So – it")], words))
    assert written.endswith(r",{\k50}- So – {\k10}it" + "\n")


def test_ass_counts_many_hours_and_shows_braces_and_backslashes():
    late = TimedText("x", [TextSegment(36_000.5, 36_002.0, r"{so} a\Nb")], ())
    assert timed_text(".ass", late).splitlines()[-1] == (
        "Dialogue: 0,10:00:00.50,10:00:02.00,Default,,0,0,0,,\\{so\\} a\\\u2060Nb"
    )
