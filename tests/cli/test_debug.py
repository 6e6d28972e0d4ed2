"""`attune train --debug`: a few batches of everything, in a run of its own."""

import json

import pytest

from attune.cli import main

from tiny import write_recipe

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("debug"))


def test_a_rehearsal_trains_evaluates_saves_and_scores_and_leaves_the_run_alone(recipe, tmp_path, capsys):
    run, debug = tmp_path / "run", tmp_path / "run-debug"
    words = ["train", str(recipe), f"run={run}", "train.epochs=3", "train.steps=null", "--debug", "--workers", "0"]
    for _ in range(2):  # a second one begins anew
        assert main([*words, "--per-rank"]) == 0
        printed = capsys.readouterr().out
        assert "training: step 1/4" in printed and "starting" in printed
        assert printed.count("rank ") == 4 and printed.count("\nall ") == 4  # dev twice, then dev and test
        saved = sorted(path.name for path in (debug / "checkpoints").iterdir())
        assert saved == ["step-000002", "step-000004"]
        scores = json.loads((debug / "scores.json").read_text())
        assert scores["test"]["utterances"] == 6 and (debug / "model/model.safetensors").is_file()
    assert not run.exists()


def test_a_run_whose_name_ends_as_that_of_a_rehearsal_is_not_removed(recipe, tmp_path, capsys):
    run, quick = tmp_path / "run-debug", ("--workers", "0", "--device=cpu")
    assert main(["train", str(recipe), f"run={run}", "train.steps=3", "data.test=[]", *quick]) == 0
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert main(["train", str(recipe), f"run={tmp_path / 'run'}", "--debug", *quick]) == 2
    assert "was made by another recipe" in capsys.readouterr().err
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before


def test_what_is_no_rehearsal_is_not_removed(recipe, tmp_path, capsys):
    debug = tmp_path / "run-debug"
    debug.mkdir()
    (debug / "thesis.txt").write_text("mine")
    assert main(["train", str(recipe), f"run={tmp_path / 'run'}", "--debug", "--workers", "0"]) == 2
    assert "has other files" in capsys.readouterr().err and (debug / "thesis.txt").read_text() == "mine"
