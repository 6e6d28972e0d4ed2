"""Nothing of a folder that was pulled is run: neither a file beside a model, nor a module that its recipe names."""

import os
import shutil
import subprocess
import sys

import pytest

from attune.cli import main

from tiny import write_recipe

QUICK = ("--workers=0", "--device=cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An exported model."""
    folder = tmp_path_factory.mktemp("trust")
    recipe = write_recipe(folder, utterances=8)
    assert main(["train", str(recipe), "train.steps=1", "train.warmup=0", *QUICK]) == 0
    return folder / "run/model"


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("task.name", "name: transcribe", "name: evil.task"),
        ("model.family", "family: ssl", "family: evil.family"),
        ("model.upstream", "upstream: fbank", "upstream: evil.upstream"),
        ("task.normalizer", "normalizer: none", "normalizer: evil.normalizer"),
        ("model.upstream", "upstream: fbank", "upstream: ./evil.py"),
        ("data.dev", "dev: [", "dev: [evil.store://bucket/dev.jsonl, "),
    ],
)
def test_a_module_that_a_models_recipe_names_is_not_imported(model, tmp_path, monkeypatch, capsys, key, old, new):
    (tmp_path / "evil").mkdir()
    for name in ("__init__", "task", "family", "upstream", "normalizer", "store"):
        (tmp_path / f"evil/{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    written = (model / "recipe.yaml").read_text()
    assert old in written, written
    pulled = tmp_path / "pulled"
    pulled.mkdir()
    for path in model.iterdir():
        (pulled / path.name).symlink_to(path)
    (pulled / "recipe.yaml").unlink()
    (pulled / "recipe.yaml").write_text(written.replace(old, new))
    assert main(["evaluate", str(pulled), "--on", "dev", *QUICK]) == 2
    assert f"{key}: this model would run the module '" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_a_file_within_a_run_that_its_recipe_names_is_not_run(model, tmp_path, monkeypatch, capsys):
    pulled = shutil.copytree(model.parent, tmp_path / "pulled")
    (pulled / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    written = (pulled / "recipe.yaml").read_text()
    (pulled / "recipe.yaml").write_text(written.replace("upstream: fbank", "upstream: ./pulled/evil.py"))
    monkeypatch.chdir(tmp_path)
    for verb in (["evaluate"], ["transcribe", str(tmp_path / "a.wav")], ["report"], ["train"]):
        assert main([verb[0], "pulled", *verb[1:]]) == 2
        assert "model.upstream: this model would run the module './pulled/evil.py'" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_a_module_that_the_user_names_is(model, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    text = (model / "recipe.yaml").read_text()
    (model / "recipe.yaml").write_text(text.replace("normalizer: none", "normalizer: own_words.it"))
    (tmp_path / "own_words").mkdir()
    (tmp_path / "own_words/it.py").write_text("NORMALIZER = str.lower\n")
    (tmp_path / "own_words/__init__.py").touch()
    words = ["evaluate", str(model), "--on", "dev", *QUICK]
    assert main(words) == 2
    assert "add task.normalizer=own_words.it" in capsys.readouterr().err
    assert main([*words, "task.normalizer=own_words.it"]) == 0
    (model / "recipe.yaml").write_text(text)


@pytest.mark.recipe
def test_a_file_in_the_working_folder_is_not_run_by_any_rank(model, tmp_path):
    for name in ("soundfile", "numpy", "torch"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    words = ["-m", "attune", "evaluate", str(model), "--on", "dev", "--devices", "2", *QUICK]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, (tmp_path / "executed").exists()) == (0, False), done.stderr
