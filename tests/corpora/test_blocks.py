"""Many lines at a time are the same lines."""

import pytest

from attune.corpora import _blocks
from attune.corpora._blocks import blocks_of, jsonl_blocks
from attune.corpora._lines import Line, jsonl_lines
from attune.corpora._scan import scan

CONTENT = b'{"id": "1"}\r\n\n  \n{"id": "2"}\n' + b'{"id": "3", "text": "%s"}\n' % (b"x" * 50) + b'{"id": "4"}'


@pytest.mark.parametrize("size", [1, 7, 20, 1 << 18])
@pytest.mark.parametrize("content", [CONTENT, CONTENT + b"\n", b"", b"\n\n"])
def test_blocks_of_any_size_have_the_lines_of_the_file(tmp_path, monkeypatch, size, content):
    monkeypatch.setattr(_blocks, "BYTES", size)
    path = tmp_path / "m.jsonl"
    path.write_bytes(content)
    assert [line for block in jsonl_blocks(path) for line in block.lines()] == list(jsonl_lines(path))


def test_a_record_that_is_no_line_keeps_its_place_and_its_reason():
    lines = [Line(2, 0, b'{"id": "a"}\n'), Line(3, 12, b"", "not UTF-8 text"), Line(5, 12, b'{"id": "b"}\n')]
    [block] = blocks_of(lines)
    assert sorted(block.lines()) == lines and block.content == b'{"id": "a"}\n{"id": "b"}\n'


def test_a_block_with_a_bad_line_has_its_other_rows(tmp_path):
    good = b'{"id": "%d", "text": "one two"}\n'
    path = tmp_path / "m.jsonl"
    path.write_bytes(good % 1 + b"{\n" + good % 3)
    table, bad = scan(jsonl_blocks(path), tmp_path, lambda _: None)
    assert table.line.tolist() == [1, 3] and table.offset.tolist() == [0, len(good) - 1 + 2]
    assert [each.line for each in bad] == [2]
