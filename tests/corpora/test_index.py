import hashlib
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from attune.corpora._index import load_or_scan
from attune.corpora._table import TYPES, open_table


@pytest.fixture
def manifest(tmp_path):
    """An old manifest of text rows, the second without its audio."""
    path = tmp_path / "m.jsonl"
    path.write_text('{"id": "u1", "text": "one"}\n{"id": "u2", "audio": "late.wav", "seconds": 1}\n')
    make_older(path)
    return path


def make_older(path, seconds=60):
    earlier = time.time() - seconds
    os.utime(path, (earlier, earlier))


def mark(index):
    """Leave a sign in the table by which a second opening shows that it did not scan."""
    seconds = np.load(index.table / "seconds.npy")
    np.save(index.table / "seconds.npy", np.full_like(seconds, 99))


def was_scanned(index):
    return np.load(index.table / "seconds.npy")[0] != 99


def test_the_second_opening_does_not_scan(manifest, tmp_path):
    first = load_or_scan(manifest, tmp_path / "index")
    mark(first)
    second = load_or_scan(manifest, tmp_path / "index")
    assert second == first
    assert not was_scanned(second)


def test_a_touched_manifest_with_the_same_bytes_is_not_scanned(manifest, tmp_path):
    mark(load_or_scan(manifest, tmp_path / "index"))
    make_older(manifest, 30)
    touched = load_or_scan(manifest, tmp_path / "index")
    assert not was_scanned(touched)
    assert touched.manifest.mtime_ns == manifest.stat().st_mtime_ns


def test_a_changed_manifest_is_scanned(manifest, tmp_path):
    before = load_or_scan(manifest, tmp_path / "index")
    mark(before)
    manifest.write_text(manifest.read_text().replace("u1", "u3"))
    after = load_or_scan(manifest, tmp_path / "index")
    assert was_scanned(after)
    assert after.sha256 != before.sha256


def test_a_change_within_the_tick_of_the_clock_is_noticed(manifest, tmp_path):
    now = time.time_ns()
    os.utime(manifest, ns=(now, now))
    before = load_or_scan(manifest, tmp_path / "index")
    manifest.write_text(manifest.read_text().replace("u1", "u3"))
    os.utime(manifest, ns=(now, now))
    assert load_or_scan(manifest, tmp_path / "index").sha256 != before.sha256


def test_audio_that_arrives_later_makes_its_row_good(manifest, tmp_path):
    first = load_or_scan(manifest, tmp_path / "index")
    assert [bad.line for bad in first.bad_lines] == [2]
    (tmp_path / "late.wav").write_bytes(b"sound")
    second = load_or_scan(manifest, tmp_path / "index")
    assert second.bad_lines == () and len(open_table(second.table)) == 2
    assert second.fingerprint != first.fingerprint


@pytest.mark.parametrize("damage", ["header", "format", "table"])
def test_a_damaged_index_is_made_anew(manifest, tmp_path, damage):
    index = load_or_scan(manifest, tmp_path / "index")
    mark(index)
    (header,) = (tmp_path / "index").glob("*.json")
    if damage == "header":
        header.write_text(header.read_text()[:100])
    elif damage == "format":
        header.write_text(json.dumps(json.loads(header.read_text()) | {"format": 0}))
    else:
        (index.table / "seconds.npy").unlink()
    assert was_scanned(load_or_scan(manifest, tmp_path / "index"))


def test_manifests_of_one_name_in_two_folders_have_their_own_indexes(manifest, tmp_path):
    other = tmp_path / "other" / manifest.name
    other.parent.mkdir()
    other.write_text('{"id": "u9", "text": "nine"}\n')
    for _ in range(2):
        assert len(load_or_scan(manifest, tmp_path / "index").bad_lines) == 1
        assert len(load_or_scan(other, tmp_path / "index").bad_lines) == 0


def test_nothing_half_written_is_left_behind(manifest, tmp_path):
    table = tmp_path / "m.csv"
    table.write_text("id,text\nu1,one\n")
    load_or_scan(manifest, tmp_path / "index")
    load_or_scan(table, tmp_path / "index")
    kinds = sorted(path.suffix for path in (tmp_path / "index").rglob("*"))
    assert kinds == ["", "", ".json", ".json", ".jsonl", ".lock", ".lock", *[".npy"] * 2 * len(TYPES)]


def test_of_many_processes_one_scans(manifest, tmp_path):
    script = (
        "import sys; from pathlib import Path; from attune.corpora._index import load_or_scan\n"
        "scans = []; load_or_scan(Path(sys.argv[1]), Path(sys.argv[2]), scans.append); print(bool(scans))"
    )
    rows = (f'{{"id": "u{number}", "text": "one"}}\n' for number in range(50_000))
    manifest.write_text("".join(rows))
    command = [sys.executable, "-c", script, manifest, tmp_path / "index"]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(rank.communicate(timeout=60)[0].strip() for rank in ranks) == ["False", "False", "True"]


def test_the_scan_shows_how_far_it_is(manifest, tmp_path):
    seen = []
    load_or_scan(manifest, tmp_path / "index", seen.append)
    size = manifest.stat().st_size
    assert {(each.verb, each.total) for each in seen} == {("scanning", size)}
    assert seen[-1].done == size and seen == sorted(seen, key=lambda each: each.done)


def test_a_column_is_mapped_and_not_copied(manifest, tmp_path):
    table = open_table(load_or_scan(manifest, tmp_path / "index").table)
    assert all(isinstance(column, np.memmap) for column in table.columns().values())


def test_runs_of_the_first_release_find_their_data_unchanged(manifest, tmp_path):
    index = load_or_scan(manifest, tmp_path / "index")
    types = [("offset", "<i8"), ("length", "<i4"), ("line", "<i4"), ("seconds", "<f8"), ("hash", "<u8")]
    rows = list(zip(*open_table(index.table).columns().values(), strict=True))
    former = index.sha256.encode() + np.array(rows, types).tobytes()
    assert index.fingerprint == hashlib.sha256(former).hexdigest()
