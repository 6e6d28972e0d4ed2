"""Cross-validation: each fold is tested once, and never learned from in its own run."""

import json

import pytest

from attune import recipe as recipes
from attune.cli import main
from attune.errors import DataError
from attune.run import Run
from attune.studies.folds import write_folds

import small_corpora as corpora

pytestmark = pytest.mark.recipe

RECIPE = """\
run: {folder}/run
seed: 5
data: {{train: [not-used.jsonl], dev: [not-used.jsonl]}}
task: {{name: classify, label: speaker, head: {{width: 16}}}}
model: {{family: ssl}}
batches: {{micro_utterances: 8}}
optimizer: {{lr: 0.01}}
train: {{steps: 4, eval_every: 4, save_every: 4, keep_best: dev.accuracy}}
"""


@pytest.fixture
def words(tmp_path):
    folds = [corpora.speakers(tmp_path / str(fold), f"fold{fold}", range(3), 3, fold) for fold in (1, 2, 3)]
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path))
    return ["folds", str(tmp_path / "recipe.yaml"), *map(str, folds), "--device=cpu", "--workers=0"]


def ids(path):
    return {json.loads(line)["id"] for line in path.read_text().splitlines()}


@pytest.mark.parametrize("separator", ["\u2028", "\x85"])
def test_a_row_with_a_line_separator_is_one_row_also_behind_a_byte_order_mark(tmp_path, separator):
    row = {"id": "1", "audio": "1.wav", "text": f"now{separator}then"}
    for fold in ("a", "b"):
        (tmp_path / f"{fold}.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n\n", encoding="utf-8-sig")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path))
    recipe = recipes.load(tmp_path / "recipe.yaml").recipe
    [first, _] = write_folds(recipe, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    [kept] = (first.run.parent / "folds" / "1-train.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert json.loads(kept)["text"] == row["text"]


def test_every_fold_is_tested_once_by_a_model_of_the_others(words, tmp_path, capsys):
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metric"] == "accuracy" and len(found["folds"]) == 3
    assert found["mean"] == pytest.approx(sum(found["folds"]) / 3)
    everything = set()
    for fold in (1, 2, 3):
        run = Run(tmp_path / "run" / f"fold-{fold}")
        tested = {json.loads(line)["id"] for line in run.predictions("test").read_text().splitlines()}
        train, dev = (ids(tmp_path / "run" / "folds" / f"{fold}-{name}.jsonl") for name in ("train", "dev"))
        assert not train & dev and not tested & (train | dev)
        assert (len(train), len(dev), len(tested)) == (14, 4, 9)
        everything |= tested
    assert len(everything) == 27
    capsys.readouterr()
    assert main(words) == 0  # again: nothing is trained anew
    assert "mean: accuracy" in capsys.readouterr().out


def test_one_manifest_is_refused(words, capsys):
    assert main([*words[:3], "--device=cpu"]) == 2
    assert "at least two manifests" in capsys.readouterr().err


def test_a_fold_that_is_a_table_is_refused_with_what_a_fold_is(tmp_path):
    for fold in ("a", "b"):
        (tmp_path / f"{fold}.csv").write_text("id,audio,text\n1,1.wav,one\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path))
    recipe = recipes.load(tmp_path / "recipe.yaml").recipe
    with pytest.raises(DataError, match=r"b\.csv:1 is not a JSON object.*manifest of JSON lines, as `attune prepare`"):
        list(write_folds(recipe, [tmp_path / "a.csv", tmp_path / "b.csv"]))
