"""Cross-validation: each fold is tested once, and never learned from in its own run."""

import json

import pytest

from attune.cli import main
from attune.run import Run

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
