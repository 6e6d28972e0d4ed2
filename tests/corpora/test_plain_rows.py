import json

import pytest

from attune.corpora._plain_rows import read_plain, read_plain_lines
from attune.corpora._rows import BadRow, read_row

PLAIN = [
    {"id": "a", "audio": "a.wav", "seconds": 1.5, "text": "one"},
    {"id": "a", "audio_filepath": "a.wav", "duration": 2, "text": "naïve é", "offset": 1},
    {"id": "a", "audio": "t.tar", "seconds": 1, "first_byte": 512, "byte_count": 9, "age": 30, "tags": ["x"]},
    {"id": "a", "audio": "a.wav", "seconds": "1.25", "text": "from a table", "speaker": "7"},
    {"id": "a", "text": 'of "text" alone'},
]
UNUSUAL = [
    b'{"id": "\\u0061", "audio": "a.wav", "seconds": 1, "note": ' + b"[" * 100_000,
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "note": "\xff"}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "note": "tab\there"}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "note": "\\ud800"}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "note": "\\q"}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "note": NaN}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "first_byte": 3}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "labels": {"a": [1]}}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "segments": [{"start": 2, "end": 1}]}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "phrases": 3}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "sentence": ""}',
    b'{"id": "a", "audio": "a.wav", "seconds": "nan"}',
    b'{"id": "a", "audio": "a.wav", "seconds": true}',
    b'{"id": "a", "audio": "a.wav", "seconds": 0}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1e9}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "start": -1}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "text": "\\u2003"}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1, "speaker": ["s"]}',
    b'{"id": "", "audio": "a.wav", "seconds": 1}',
    b'{"id": "a", "audio": "a.wav"}',
    b'{"id": "a", "audio": "", "seconds": 1}',
    b'{"id": "a"}',
    b'\xef\xbb\xbf{"id": "a", "audio": "a.wav", "seconds": 1}',
    b'{"id": "a", "audio": "a.wav", "seconds": 1} x',
    b"[1]",
]


@pytest.mark.parametrize("fields", PLAIN)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_usual_line_is_read_as_the_row_that_it_is(fields, is_ascii):
    line = json.dumps(fields, ensure_ascii=is_ascii).encode() + b"\r\n"
    plain, row = read_plain(line), read_row(line)
    assert (plain.id, plain.audio, plain.seconds) == (row.id, row.audio, row.seconds)
    assert (plain.first_byte, plain.byte_count) == (row.first_byte, row.byte_count)


@pytest.mark.parametrize("line", UNUSUAL)
def test_no_line_is_accepted_that_is_not_a_valid_row(line):
    plain = read_plain(line)
    if plain is not None:
        assert plain.id == read_row(line).id


def test_what_is_left_to_the_careful_reading_is_what_needs_it():
    left = [line for line in UNUSUAL if read_plain(line) is None]
    assert len(left) == len(UNUSUAL)
    with pytest.raises(BadRow):
        read_row(left[0])


def lines_of(*rows: dict | bytes) -> bytes:
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


def test_many_plain_lines_are_read_as_each_by_itself():
    rows = read_plain_lines(lines_of(*PLAIN), len(PLAIN))
    alone = [read_plain(json.dumps(row).encode()) for row in PLAIN]
    assert rows is not None
    assert list(rows.ids) == [row.id for row in alone] and list(rows.audio) == [row.audio for row in alone]
    assert list(rows.seconds) == [row.seconds or 0.0 for row in alone] and list(rows.packed) == [("t.tar", 521)]


@pytest.mark.parametrize("line", UNUSUAL)
def test_one_unusual_line_among_many_leaves_them_all_to_read_row(line):
    assert read_plain_lines(lines_of(PLAIN[0], line, PLAIN[1]), 3) is None


@pytest.mark.parametrize(
    "lines",
    [
        b'{"id": "a",\n"audio": "a.wav", "seconds": 1}\n',
        b'{"id": "a", "text": "x"} {"id": "b", "text": "y"}\n{"id": "c",\n"text": "z"}\n',
        b'{"id": "a", "text": "x"},{"id": "b", "text": "y"}\n{"id": "c",\n"text": "z"}\n',
        b'{"id": "a", "text": "x"}\n\n',
        b'{"id": "a", "text": "x"}\n[\n]\n',
        b'{"id": "a", "text": "x"}{"id": "b", "text": "y"}\n{"id": "c", "n": "}\n{"}\n',
    ],
)
def test_lines_that_are_no_objects_of_their_own_are_not_taken_for_rows(lines):
    assert read_plain_lines(lines, lines.count(b"\n")) is None
