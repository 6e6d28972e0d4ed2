import json
import math

import pytest

from attune.corpora import open_corpus, require_valid_rows, select
from attune.errors import DataError


@pytest.fixture
def corpus_of(tmp_path):
    """Makes a corpus of rows that last the given seconds; None is a bad row."""
    (tmp_path / "a.wav").write_bytes(b"not looked into")

    def make(*seconds):
        rows = [{"id": str(n), "audio": "a.wav", "seconds": s or 0} for n, s in enumerate(seconds)]
        (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return open_corpus("train", [tmp_path / "m.jsonl"], tmp_path / "index")

    return make


def test_rows_outside_the_limits_are_counted(corpus_of):
    selection = select(corpus_of(0.5, 1.0, 5.0, 30.0, 31.0, 40.0), 1.0, 30.0)
    assert list(selection.rows) == [1, 2, 3]
    assert (selection.too_short, selection.too_long) == (1, 2)
    assert (selection.seconds, selection.left_out_seconds) == (36.0, 71.5)


def test_without_limits_every_row_is_kept(corpus_of):
    assert list(select(corpus_of(0.5, 100.0), 0.0, math.inf).rows) == [0, 1]


def test_a_sound_corpus_passes_under_either_policy(corpus_of):
    require_valid_rows(corpus_of(1.0), "fail")
    require_valid_rows(corpus_of(1.0), "drop")


def test_bad_rows_fail_with_the_first_ten_the_count_and_the_way_on(corpus_of, tmp_path):
    with pytest.raises(DataError) as error:
        require_valid_rows(corpus_of(1.0, *[None] * 12), "fail")
    lines = str(error.value).splitlines()
    assert lines[0] == "`train` has 12 bad rows out of 13:"
    assert lines[1] == f"  {tmp_path}/m.jsonl:2: seconds is 0.0; expected more than 0"
    assert lines[10].startswith(f"  {tmp_path}/m.jsonl:11:")
    assert lines[11] == "  … and 2 more"
    assert "data.bad_rows=drop" in lines[12]


def test_bad_rows_are_dropped_when_good_ones_are_left(corpus_of):
    require_valid_rows(corpus_of(1.0, None), "drop")
    with pytest.raises(DataError, match="No valid row is left"):
        require_valid_rows(corpus_of(None, None), "drop")
