import json
import re
from pathlib import Path

import pytest

from attune.cli import main
from attune.recipe import load

BASE = """\
run: runs/toy
data: {train: [train.jsonl]}
task: {name: toy.task, language: no}
model: {family: toy.family}
batches: {micro_seconds: 240}
optimizer: {lr: 1e-4}
train: {steps: 100}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)
    Path("x.yaml").write_text("base: base.yaml\ntrain:\n  precision: bf16\n")


def shown(capsys, *words):
    assert main(["show", *words]) == 0
    return capsys.readouterr().out


def test_each_value_is_shown_with_where_it_came_from(capsys):
    lines = [" ".join(line.split()) for line in shown(capsys, "x.yaml", "train.clip=2").splitlines()]
    assert "seed: 0 # default" in lines
    assert 'language: "no" # base.yaml:3' in lines
    assert "precision: bf16 # x.yaml:3" in lines
    assert "clip: 2.0 # override" in lines
    assert "train:" in lines


def test_a_long_line_does_not_move_the_other_comments(capsys):
    long = ", ".join(f"manifests/{n}.jsonl" for n in range(20))
    lines = shown(capsys, "x.yaml", f"data.train=[{long}]").splitlines()
    assert any(re.fullmatch("seed: 0 {2,40}# default", line) for line in lines)
    assert f"  train: [{long}]  # override" in lines


def test_what_is_shown_is_a_recipe(capsys):
    Path("shown.yaml").write_text(shown(capsys, "x.yaml", "task.vocabulary=50"))
    assert load(Path("shown.yaml")).recipe == load(Path("x.yaml"), ["task.vocabulary=50"]).recipe


@pytest.mark.parametrize(
    "words",
    [
        ["x.yaml", "train.clip=2", "seed=3", "--json"],
        ["x.yaml", "train.clip=2", "--json", "seed=3"],
        ["x.yaml", "--json", "train.clip=2", "seed=3"],
        ["--json", "x.yaml", "train.clip=2", "seed=3"],
    ],
)
def test_overrides_may_stand_anywhere_after_the_recipe(capsys, words):
    found = json.loads(shown(capsys, *words))
    assert found["recipe"]["train"]["clip"] == 2.0
    assert found["recipe"]["seed"] == 3
    assert found["origins"]["train.clip"] == "override"
    assert found["origins"]["task.head.layers"] == "default"


def test_a_run_stands_for_its_recipe(capsys):
    Path("run").mkdir()
    Path("run/recipe.yaml").write_text(BASE)
    assert "lr: 0.0001" in " ".join(shown(capsys, "run").split())
    assert main(["check", "run", "model={family: ssl}", "task={name: classify}"]) == 2
    assert "data.train: No file or folder train.jsonl" in capsys.readouterr().out


def test_all_that_is_wrong_goes_to_stderr(capsys):
    assert main(["show", "x.yaml", "train.stps=3", "optimizer.lr=fast"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "override: optimizer.lr: expected a number, found 'fast'",
        "override: train.stps: unknown key; did you mean 'steps'?",
    ]


def test_the_schema_is_json(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Recipe"
