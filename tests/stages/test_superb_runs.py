"""The benchmark run: dev chooses the learning rate, test is scored once, and a missing corpus is named."""

import json
import math
from xml.etree import ElementTree

import pytest

from attune.cli import main
from attune.corpora import open_manifest
from attune.metrics import Metric
from attune.stages.superb import TASKS, SuperbTask, TaskResult, Trial, chosen, radar, table
from attune.testing import make_corpus

ACCURACY = Metric("accuracy", "%", True, "Right ones.")
TASK = SuperbTask("KS", "superb-ks", "Speech Commands", {"fbank": 41.38})


def trial(tmp_path, rate, value=None):
    run = tmp_path / f"lr-{rate}"
    run.mkdir()
    if value is not None:
        (run / "best.json").write_text(json.dumps({"metric": "dev.accuracy", "value": value, "step": 1}))
    return Trial(TASK, rate, run, ())


def test_dev_chooses_and_a_run_without_a_score_never_wins(tmp_path):
    found = [trial(tmp_path, "1e-1"), trial(tmp_path, "1e-2", 70.0), trial(tmp_path, "1e-3", 90.0)]
    assert chosen(found, ACCURACY).value == "1e-3"
    assert math.isnan(found[0].dev())


def test_the_table_has_the_interval_the_rate_and_the_published_figure(tmp_path):
    scores = {"scores": {"accuracy": {"value": 50.0, "low": 40.0, "high": 60.0}}}
    result = TaskResult(TASK, ACCURACY, trial(tmp_path, "1e-3", 1.0), scores)
    assert "| KS | accuracy % | 50.00 | 40.00 to 60.00 | lr 1e-3 | 41.38 |" in table([result], "fbank")
    drawn = ElementTree.fromstring(radar([result] * 3, "a<b"))
    assert len([each for each in drawn if each.tag.endswith("line")]) == 3


def test_every_task_has_a_shipped_recipe_and_a_metric_with_a_direction():
    from attune.stages.superb import _shipped, metric_of

    assert len(TASKS) == 14
    for task in TASKS:
        assert metric_of(_shipped(task.recipe)).name


@pytest.mark.recipe
def test_a_task_is_swept_scored_and_goes_on_where_it_stopped(tmp_path, capsys):
    folder = tmp_path / "data" / "speech_commands"
    manifest = make_corpus(folder, utterances=8)
    rows = open_manifest(manifest, tmp_path / "index")
    labeled = [json.loads(line) for line in manifest.read_text().splitlines()]
    for split in ("train", "dev", "test"):
        lines = [json.dumps({**row, "word": str(number % 2)}) for number, row in enumerate(labeled)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    assert len(rows) == 8
    words = ["superb", "--upstream", "fbank", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "out")]
    words += ["--tasks", "KS,SID", "--rates", "1e-2,1e-3", "train.steps=2", "train.eval_every=1", "train.save_every=1"]
    assert main([*words, "task.head.width=8"]) == 0
    printed = capsys.readouterr()
    assert "| KS | accuracy % |" in printed.out and "SID: no " in printed.err and "VoxCeleb1" in printed.err
    assert (tmp_path / "out" / "table.md").exists() and (tmp_path / "out" / "radar.svg").exists()
    assert {each.name for each in (tmp_path / "out" / "superb-ks").iterdir()} == {"recipe.yaml", "lr-1e-2", "lr-1e-3"}
    before = (tmp_path / "out" / "superb-ks" / "lr-1e-2" / "log.jsonl").read_text().count('"step"')
    assert main([*words, "task.head.width=8"]) == 0
    after = (tmp_path / "out" / "superb-ks" / "lr-1e-2" / "log.jsonl").read_text().count('"event": "step"')
    assert after <= before


def test_unknown_tasks_are_refused(tmp_path, capsys):
    assert main(["superb", "--upstream", "fbank", "--data", "x", "--to", str(tmp_path), "--tasks", "ASVV"]) == 2
    assert "did you mean 'ASV'" in capsys.readouterr().err
