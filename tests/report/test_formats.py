from pathlib import Path

import pytest

from attune.errors import ConfigError
from attune.report.formats import TABLES, require_format, table_text

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


def test_a_format_is_known_by_its_suffix_in_any_case():
    assert require_format(Path("x.CSV"), TABLES) == ".csv"
    with pytest.raises(ConfigError, match=r"unknown format '' \(known: .csv, .json"):
        require_format(Path("x"), TABLES)
