"""Whispers of others through `attune import`."""

import json

import pytest
import torch
from safetensors.torch import load_file

from attune import recipe as recipes
from attune.cli import main

from tiny_whisper import DIMS, ENGLISH_ONLY, MULTILINGUAL, openai_name, write_whisper


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


def test_the_tokenizer_of_a_pt_file_can_be_named(tmp_path, capsys):
    folder, checkpoint, own = write_whisper(tmp_path / "model"), tmp_path / "apart/tiny.pt", tmp_path / "own, it is"
    checkpoint.parent.mkdir()
    state = {openai_name(name): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    torch.save({"dims": DIMS, "model_state_dict": state}, checkpoint)
    assert main(["import", str(checkpoint), "--to", str(own)]) == 2
    assert "--tokenizer PATH in attune import" in capsys.readouterr().err
    assert main(["import", str(checkpoint), "--to", str(own), "--tokenizer", str(folder / "tokenizer.json")]) == 0
    assert (own / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_a_folder_takes_no_other_tokenizer(tmp_path, capsys):
    folder = write_whisper(tmp_path / "model")
    words = ["--to", str(tmp_path / "own"), "--tokenizer", str(folder / "tokenizer.json")]
    assert main(["import", str(folder), *words]) == 2
    assert "has its own tokenizer. Remove --tokenizer" in capsys.readouterr().err


def test_a_config_that_is_no_text_is_told(tmp_path, capsys):
    folder = write_whisper(tmp_path / "model")
    (folder / "config.json").write_bytes(b'{"model_type": "whisper", "\xff": 1}')
    assert main(["import", str(folder), "--to", str(tmp_path / "own")]) == 2
    assert f"Cannot read {folder}/config.json" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["export"], ["export", "--for-transformers"], ["import"], ["pull"]])
@pytest.mark.parametrize("place", ["file/own", "file/deeper/own"])
def test_a_place_that_cannot_be_written_is_told(tmp_path, capsys, words, place):
    source = write_whisper(tmp_path / "model")
    if words[0] == "export":
        imported(source)
        source = tmp_path / "own"
    (tmp_path / "file").touch()
    assert main([*words, str(source), "--to", str(tmp_path / place)]) == 2
    assert f"Cannot write {tmp_path / place}" in capsys.readouterr().err
