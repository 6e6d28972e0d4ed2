"""Whispers of others through `attune import`."""

import json

import pytest

from attune import recipe as recipes
from attune.cli import main

from tiny_whisper import ENGLISH_ONLY, MULTILINGUAL, write_whisper


def imported(folder):
    assert main(["import", str(folder), "--to", str(folder.parent / "own")]) == 0
    recipe = recipes.load(folder.parent / "own/recipe.yaml", []).recipe
    generation = json.loads((folder.parent / "own/generation_config.json").read_text())
    return recipe.task.config.language, recipe.model.config.speech_task, generation


@pytest.mark.parametrize(
    ("language", "known"),
    [("be", "be"), ("<|th|>", "th"), ("no", "no"), ("belarusian", None), ("sv", None), (None, None), (7, None)],
)
def test_a_checkpoint_keeps_its_language_and_task(tmp_path, language, known):
    folder = write_whisper(tmp_path / "model", MULTILINGUAL)
    (folder / "generation_config.json").write_text(json.dumps({"language": language, "task": "translate"}))
    found_language, task, generation = imported(folder)
    assert (found_language, task) == (known, "translate")
    assert (generation["language"], generation["task"]) == (known, "translate")


def test_an_english_only_checkpoint_is_told_neither_language_nor_task(tmp_path):
    folder = write_whisper(tmp_path / "model", ENGLISH_ONLY)
    (folder / "generation_config.json").write_text(json.dumps({"language": "en", "task": "translate"}))
    assert imported(folder)[:2] == (None, "transcribe")
