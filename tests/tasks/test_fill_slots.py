"""Slots become tags around values, and come back as they were."""

from pathlib import Path

import pytest

from attune.errors import DataError
from attune.tasks.fill_slots import FillSlots, FillSlotsConfig
from attune.types import Utterance


def utterance(text, slots):
    return Utterance("a", 1.0, text=text, labels={"slots": slots})


def task(folder: Path, *rows):
    FillSlots.prepare(FillSlotsConfig(), rows, folder)
    return FillSlots(FillSlotsConfig(), folder)


@pytest.mark.parametrize(
    ("tags", "slots"),
    [
        ("O B-artist I-artist O", [["artist", "the who"]]),
        ("O B-artist B-artist O", [["artist", "the"], ["artist", "who"]]),
        ("O B-artist I-track B-track", [["artist", "the"], ["track", "who"], ["track", "now"]]),
        ("I-artist O I-artist I-artist", [["artist", "play"], ["artist", "who now"]]),  # as some corpora begin a value
        ("O O O O", []),
    ],
)
def test_a_value_has_a_tag_before_and_after_it(tags, slots, tmp_path):
    row = utterance("play the who now", tags)
    assert task(tmp_path, row).reference(row) == {"text": "play the who now", "slots": slots}


@pytest.mark.parametrize("tags", ["O artist artist O", "O B- O O", "O o O O"])
def test_what_is_no_tag_is_refused(tags, tmp_path):
    with pytest.raises(DataError, match="'a' has the slot tag .*; expected O, or B-NAME and I-NAME"):
        task(tmp_path, utterance("play the who now", tags))
