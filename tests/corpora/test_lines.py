import io
import json

import pytest

from attune.corpora._lines import jsonl_lines, table_lines
from attune.errors import DataError


def convert(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    copy = io.BytesIO()
    lines = list(table_lines(path, copy))
    for line in lines:
        assert copy.getvalue()[line.offset : line.offset + len(line.content)] == line.content
    return [(line.number, line.problem or json.loads(line.content)) for line in lines]


def test_jsonl_lines_carry_their_number_and_offset(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"id": 1}\r\n\n  \n{"id": 2}')
    assert [(line.number, line.offset, line.content) for line in jsonl_lines(path)] == [
        (1, 0, b'{"id": 1}\r\n'),
        (4, 15, b'{"id": 2}'),
    ]


def test_csv_cells_may_be_quoted_and_span_lines(tmp_path):
    rows = convert(tmp_path / "m.csv", 'id,text\nu1,"one, ""two""\nthree"\n\nu2,four\n')
    assert rows == [(2, {"id": "u1", "text": 'one, "two"\nthree'}), (5, {"id": "u2", "text": "four"})]


def test_a_quote_in_tsv_is_a_quote(tmp_path):
    rows = convert(tmp_path / "m.tsv", 'id\ttext\nu1\t"Yes, she said\nu2\tno" way\n')
    assert rows == [(2, {"id": "u1", "text": '"Yes, she said'}), (3, {"id": "u2", "text": 'no" way'})]


def test_an_empty_cell_is_absent_unless_it_is_the_text(tmp_path):
    rows = convert(tmp_path / "m.csv", "id,audio,speaker,sentence\nu1,a.wav,,\n")
    assert rows == [(2, {"id": "u1", "audio": "a.wav", "sentence": ""})]


def test_a_byte_order_mark_and_spaces_are_no_part_of_the_column_names(tmp_path):
    assert convert(tmp_path / "m.csv", "\ufeffid, text\nu1,é\n") == [(2, {"id": "u1", "text": "é"})]


def test_a_bad_record_is_named_and_the_next_is_read(tmp_path):
    rows = convert(tmp_path / "m.csv", b'id,text\nu1\nu2,"a"b\nu3,\xff\nu4,fine\n')
    assert [number for number, _ in rows] == [2, 3, 4, 5]
    assert rows[0][1] == "1 cells; the header has 2 columns"
    assert "not valid CSV" in rows[1][1]
    assert rows[2][1] == "not UTF-8 text"
    assert rows[3][1] == {"id": "u4", "text": "fine"}


@pytest.mark.parametrize("rest", ["u2,b\nu3,c\n", 'u2,b\nu3,"c"\n', 'u2,b\n",c,d\n'])
def test_a_quote_that_swallows_rows_is_refused_as_a_whole(tmp_path, rest):
    with pytest.raises(DataError, match=r"m\.csv:2: .* extends to line \d"):
        convert(tmp_path / "m.csv", f'id,text\nu1,"a\n{rest}')


@pytest.mark.parametrize("content", ["", "a.wav,hello\n", "id,text,text\n", '"id,text\n'])
def test_a_table_without_column_names_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="name the columns"):
        convert(tmp_path / "m.csv", content)


def test_a_table_with_headers_of_its_own_is_answered_with_what_makes_a_manifest_of_it(tmp_path):
    with pytest.raises(DataError, match=r"Found: Datei, Satz\. .*attune prepare csv --from .*m\.csv --to FOLDER"):
        convert(tmp_path / "m.csv", "Datei;Satz\na.wav;eins\n")
