"""The check of a corpus finds each broken promise."""

from pathlib import Path

import pytest

from attune.corpora import Layout, Row
from attune.testing import CheckFailed, check_corpus

from miniatures import audio


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b", "c"):
        audio(tmp_path / f"{name}.wav")
    (tmp_path / "broken.wav").write_bytes(b"RIFF not a wav")
    return tmp_path


def rows(folder: Path, **splits):
    def read(place, options):
        return {
            split: iter([Row(id, str(folder / f"{name}.wav"), speaker=who) for id, name, who in found])
            for split, found in splits.items()
        }

    return Layout(read, speakers_apart=True)


def test_a_sound_corpus_passes(folder):
    check_corpus(rows(folder, train=[("1", "a", "x")], test=[("2", "b", "y")]), folder)


@pytest.mark.parametrize(
    ("test", "promise"),
    [
        (("1", "b", "y"), "train and test share 1 ids, such as 1"),
        (("2", "a", "y"), "train and test share 1 audios"),
        (("2", "b", "x"), "train and test share 1 speakers, such as x"),
        (("2", "broken", "y"), "test: it has no rows"),
    ],
)
def test_a_broken_promise_is_named(folder, test, promise):
    with pytest.raises(CheckFailed, match=promise):
        check_corpus(rows(folder, train=[("1", "a", "x")], test=[test]), folder)


def test_a_corpus_that_is_not_the_same_twice_is_told(folder):
    turn = iter(range(10))
    layout = Layout(lambda place, options: {"all": [Row(str(next(turn)), str(folder / "a.wav"))]})
    with pytest.raises(CheckFailed, match="preparing it twice gives different rows"):
        check_corpus(layout, folder)
