from pathlib import Path

import pytest

from attune.errors import ConfigError
from attune.report.formats import CAPTIONS, TABLES, caption_text, require_format, table_text
from attune.types import TextSegment, Word

ROWS = [{"id": "a", "value": 'so "it" is,\nnow', "score": -1.5}, {"id": "b\t1", "value": [1, 2], "score": None}]
COLUMNS = ("id", "value", "score")


def test_csv_quotes_what_must_be_and_tsv_keeps_each_row_on_a_line():
    assert table_text(".csv", ROWS, COLUMNS, "value") == (
        'id,value,score\na,"so ""it"" is,\nnow",-1.5\nb\t1,"[1, 2]",\n'
    )
    assert table_text(".tsv", ROWS, COLUMNS, "value") == 'id\tvalue\tscore\na\tso "it" is, now\t-1.5\nb 1\t[1, 2]\t\n'


def test_plain_text_is_the_text_alone_and_json_is_everything():
    assert table_text(".txt", ROWS, COLUMNS, "value") == 'so "it" is, now\n[1, 2]\n'
    assert table_text(".jsonl", ROWS[1:], ("id",), "value") == '{"id": "b\\t1", "value": [1, 2], "score": null}\n'
    assert table_text(".json", [], COLUMNS, "value") == "[]\n"


def test_captions_count_hours_and_leave_out_silence():
    segments = [TextSegment(0, 1.5, ""), TextSegment(3661.0004, 3663.25, "one two")]
    assert caption_text(".srt", segments, ()) == "1\n01:01:01,000 --> 01:01:03,250\none two\n"
    assert caption_text(".vtt", segments, ()) == "WEBVTT\n\n01:01:01.000 --> 01:01:03.250\none two\n"
    assert caption_text(".srt", [TextSegment(0, 1, "a"), TextSegment(1, 2, "b")], ()).split("\n\n")[1].startswith("2\n")


def test_a_long_segment_is_cut_between_words_that_have_times():
    words = [Word("word" * 5, float(number), 1.0) for number in range(10)]
    segment = TextSegment(0.0, 12.0, " ".join(word.text for word in words))
    blocks = caption_text(".srt", [segment], words).split("\n\n")
    assert [block.splitlines()[1] for block in blocks] == [
        "00:00:00,000 --> 00:00:04,000",
        "00:00:04,000 --> 00:00:08,000",
        "00:00:08,000 --> 00:00:12,000",
    ]
    assert " ".join(block.splitlines()[2] for block in blocks) == segment.text
    assert caption_text(".srt", [segment], ()).count("-->") == 1


def test_a_format_is_known_by_its_suffix_in_any_case():
    assert require_format(Path("x.CSV"), TABLES) == ".csv"
    with pytest.raises(ConfigError, match=r"unknown format '' \(known: .srt, .vtt\)"):
        require_format(Path("x"), CAPTIONS)
