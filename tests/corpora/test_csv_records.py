"""Tables of others: no cell is lost, no row vanishes into another, and what cannot be read is told."""

import pytest

from attune.corpora import CorpusPaths, Skipped
from attune.corpora import csv as csv_files
from attune.corpora._tables import read_records
from attune.corpora.common_voice import CORPUS as COMMON_VOICE
from attune.errors import DataError

import miniatures


def read(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_records(path, ("audio", "text")))


def test_a_record_with_a_cell_too_many_is_left_out_and_the_next_is_read(tmp_path):
    records = read(tmp_path / "m.csv", 'audio,text\na.wav,hello, my friend\n\nb.wav,"fine, too"\n')
    assert records == [
        Skipped("m.csv:2", "3 cells; the header has 2 columns"),
        {"audio": "b.wav", "text": "fine, too"},
    ]


def test_cells_that_are_missing_at_the_end_are_empty(tmp_path):
    assert read(tmp_path / "m.csv", "audio,text,who\na.wav,hi\n") == [{"audio": "a.wav", "text": "hi", "who": ""}]


@pytest.mark.parametrize("rest", ["", 'c.wav,"last"\n', "c.wav,last\n" * 20_000])
def test_a_quote_that_is_not_closed_is_told_with_the_line_that_it_is_in(tmp_path, rest):
    with pytest.raises(DataError, match=r"m\.csv:3: .* extends to line \d.*a quote that is opened and not closed"):
        read(tmp_path / "m.csv", f'audio,text\na.wav,hi\nb.wav,"open\nx.wav,gone\n{rest}')


def test_a_quote_within_a_line_costs_that_line_alone(tmp_path):
    first, second = read(tmp_path / "m.csv", 'audio,text\na.wav,"a" b\nb.wav,fine\n')
    assert first.which == "m.csv:2" and "not valid CSV" in first.reason
    assert second == {"audio": "b.wav", "text": "fine"}


def test_a_quote_in_tsv_is_a_quote(tmp_path):
    (record,) = read(tmp_path / "m.tsv", 'audio\ttext\na.wav\t"so, she said\n')
    assert record["text"] == '"so, she said'


def test_a_record_that_is_not_utf8_is_left_out(tmp_path):
    assert read(tmp_path / "m.csv", b"audio,text\na.wav,caf\xe9\n") == [Skipped("m.csv:2", "not UTF-8 text")]


def test_a_csv_file_with_an_unquoted_comma_loses_that_row_and_says_so(tmp_path):
    miniatures.text(tmp_path / "m.csv", "audio,text", '"a.wav","one', 'two"', "b.wav,one, two")
    first, second = csv_files.read(CorpusPaths(str(tmp_path), tmp_path), csv_files.Options(text="text"))["m"]
    assert first.text == "one\ntwo" and second == Skipped("m.csv:4", "3 cells; the header has 2 columns")


def test_a_common_voice_sentence_with_a_tab_is_left_out(tmp_path):
    source = miniatures.common_voice(tmp_path)
    with (source / "dev.tsv").open("a", encoding="utf-8") as file:
        file.write("voice1\tx.mp3\tone\ttwo\t2\tfr\n")
    with (source / "clip_durations.tsv").open("a", encoding="utf-8") as file:
        file.write("x.mp3\t1\t2\n")
    *rows, last = COMMON_VOICE.read(CorpusPaths(str(source), tmp_path), COMMON_VOICE.options())["dev"]
    assert len(rows) == 3 and last == Skipped("dev.tsv:5", "6 cells; the header has 5 columns")


ACCENTED = "audio;text\na.wav;café\nb.wav;plain\nc.wav;déjà vu\nd.wav;naïve\n"


@pytest.mark.parametrize("name", ["m.csv", "m.tsv"])
def test_a_table_in_an_encoding_of_windows_is_refused_with_how_to_convert_it(tmp_path, name):
    with pytest.raises(DataError, match=r"is not UTF-8 text: 3 lines .* line 2.*iconv -f WINDOWS-1252 -t UTF-8"):
        read(tmp_path / name, ACCENTED.encode("cp1252"))


def test_a_table_in_the_utf16_of_spreadsheets_is_refused_with_how_to_convert_it(tmp_path):
    with pytest.raises(DataError, match=r"m\.csv is UTF-16 text.*iconv -f UTF-16 -t UTF-8"):
        read(tmp_path / "m.csv", ACCENTED.encode("utf-16"))


def test_damaged_lines_of_a_table_in_utf_8_are_skipped(tmp_path):
    damaged = ACCENTED.encode("cp1252") + "e.wav;où\n".encode()
    assert [isinstance(each, Skipped) for each in read(tmp_path / "m.csv", damaged)] == [True, False, True, True, False]
