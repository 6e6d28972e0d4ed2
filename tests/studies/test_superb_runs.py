"""The benchmark run: dev chooses the learning rate or the layer, test is scored once, and a missing corpus is named."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from attune.cli import main
from attune.metrics import Metric, Score, Scores
from attune.run import Run
from attune.studies.superb import TASKS, SuperbTask, TaskResult, Trial, chosen, radar, table
from attune.studies.sweep import PointResult, SweepPoint

import small_corpora as corpora

ACCURACY = Metric("accuracy", "%", True, "Right ones.")
TASK = SuperbTask("KS", "superb-ks", "Speech Commands", {"fbank": 41.38})
SMALL = ["train.steps=2", "train.eval_every=1", "train.save_every=1", "--device=cpu", "--workers=0"]


def trial(rate, *values):
    points = tuple(SweepPoint(Path("x"), (), f"{rate} {fold}", Path(rate)) for fold in range(len(values)))
    found = {
        point.name: PointResult(
            point, None if value is None else Scores({"accuracy": Score(ACCURACY, value, 0, 1)}, {})
        )
        for point, value in zip(points, values, strict=True)
    }
    return Trial(TASK, rate, points, ((),) * len(points)), found


def test_dev_chooses_by_the_mean_over_folds_and_a_trial_without_a_score_never_wins():
    trials, results = [], {}
    for each in (("1e-1", None, 99.0), ("1e-2", 70.0, 90.0), ("1e-3", 79.0, 79.0)):
        one, found = trial(*each)
        trials, results = [*trials, one], {**results, **found}
    assert math.isnan(trials[0].dev(results, ACCURACY))
    assert chosen(trials, results, ACCURACY).value == "1e-2"
    assert chosen(trials[:1], results, ACCURACY) is None


def test_the_table_has_the_interval_the_rate_and_the_published_figure():
    result = TaskResult(TASK, ACCURACY, "lr 1e-3", 50.0, (40.0, 60.0), "KS")
    assert "| KS | accuracy % | 50.00 | 40.00 to 60.00 | lr 1e-3 | 41.38 |" in table([result], "fbank")
    drawn = ElementTree.fromstring(radar([result] * 3, "a<b"))
    assert len([each for each in drawn if each.tag.endswith("line")]) == 3


def test_scores_without_a_unit_have_rims_and_digits_of_their_own():
    scales = {"bleu": (25.0, "25.00"), "pesq": (2.25, "2.25"), "mtwv": (0.25, "0.2500")}
    for name, (value, shown) in scales.items():
        result = TaskResult(TASK, Metric(name, "", True, "Good."), "lr 1e-3", value, (0.0, value), name)
        assert f"| {shown} |" in table([result], "fbank")
        (shape,) = (each for each in ElementTree.fromstring(radar([result], "x")) if each.tag.endswith("polygon"))
        part = (240 - float(shape.get("points").split(",")[1])) / 180
        assert part == pytest.approx(0.5 if name == "pesq" else 0.25, abs=1e-3)


def test_every_task_has_a_shipped_recipe_and_the_metric_it_is_chosen_by():
    from attune.studies.superb import _shipped, metric_of

    metrics = {task.name: metric_of(_shipped(task.recipe)).name for task in TASKS}
    assert len(TASKS) == 18 and metrics["OOD-zh"] == "cer" and metrics["SE"] == "pesq" and metrics["QbE"] == "mtwv"


def labeled(folder, split, label, seed):
    """Voices with a label that follows from who speaks."""
    rows = [json.loads(line) for line in corpora.speakers(folder, split, range(2), 4, seed).read_text().splitlines()]
    return corpora.write(folder, split, [{**row, label: row["speaker"]} for row in rows])


@pytest.mark.recipe
def test_tasks_are_swept_scored_on_test_once_and_go_on_where_they_stopped(tmp_path, capsys):
    for seed, split in enumerate(("train", "dev", "test")):
        labeled(tmp_path / "data" / "speech_commands", split, "word", seed)
    words = ["superb", "--upstream", "fbank", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "out")]
    words += ["--tasks", "KS, SID", "--rates", "1e-2, 1e-3", "task.head.width=8", *SMALL]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "| KS | accuracy % |" in printed.out and "SID: no " in printed.err and "VoxCeleb1" in printed.err
    runs = tmp_path / "out" / "superb-ks"
    assert {each.name for each in runs.iterdir()} == {"recipe.yaml", "lr-1e-2", "lr-1e-3"}
    assert all("test" not in Run(run).scores() for run in runs.glob("lr-*"))
    assert all(Run(run).recipe().adapt.freeze == ("upstream",) for run in runs.glob("lr-*"))  # even without weights
    (scored,) = runs.glob("*/KS-test.json")
    assert len((scored.with_suffix(".jsonl")).read_text().splitlines()) == 8
    ElementTree.parse(tmp_path / "out" / "radar.svg")
    logs = {path: path.read_text() for path in runs.glob("*/log.jsonl")}
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["KS"]["chosen"] in ("lr 1e-2", "lr 1e-3")
    assert logs == {path: path.read_text() for path in runs.glob("*/log.jsonl")}


@pytest.mark.recipe
def test_emotions_are_five_folds_and_queries_are_searched_by_every_layer(tmp_path, capsys):
    for session in range(1, 6):
        labeled(tmp_path / "data" / "iemocap", f"session{session}", "emotion", session)
    queries = tmp_path / "data" / "quesst14"
    for seed, split in enumerate(("dev", "test")):
        rows = [json.loads(line) for line in corpora.searched(queries, split, 4, seed).read_text().splitlines()]
        corpora.write(queries, split, [row for row in rows if row["labels"]["role"] == "query"])
        corpora.write(queries, "documents", [row for row in rows if row["labels"]["role"] == "document"])
    words = ["superb", "--upstream", "fbank", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "out")]
    assert main([*words, "--tasks", "ER,QbE", "--rates", "1e-2", *SMALL]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.startswith("| ER | accuracy % |") and "| lr 1e-2 | 48.24 |" in row for row in rows)
    assert any(row.startswith("| QbE | mtwv |") and "| layer 0 | 0.0058 |" in row for row in rows)
    assert len([*(tmp_path / "out" / "superb-er" / "lr-1e-2").glob("fold-*/ER-test.json")]) == 5


@pytest.mark.recipe
def test_recognition_is_scored_with_a_language_model_too_and_again_when_it_or_the_test_set_changes(tmp_path, capsys):
    names = {"train": "train-clean-100", "dev": "dev-clean", "test": "test-clean"}
    for seed, name in enumerate(names.values()):
        corpora.words(tmp_path / "data" / "librispeech", name, 4, seed)
    arpa = ["\\data\\", "ngram 1=4", "", "\\1-grams:", "-1 <unk>", "-99 <s>", "-1 </s>", "-1 e", "", "\\end\\", ""]
    (tmp_path / "lm.arpa").write_text("\n".join(arpa))
    words = ["superb", "--upstream", "fbank", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "out")]
    words += ["--tasks", "ASR", "--rates", "1e-3", "--lm", str(tmp_path / "lm.arpa"), "task.head.width=8", *SMALL]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "| ASR | wer % |" in printed and "| ASR+LM | wer % |" in printed
    (plain,), (fused,) = ([*(tmp_path / "out").rglob(f"{name}-test.json")] for name in ("ASR", "ASR+LM"))
    before = plain.stat().st_mtime_ns, fused.stat().st_mtime_ns
    assert main(words) == 0 and (plain.stat().st_mtime_ns, fused.stat().st_mtime_ns) == before
    (tmp_path / "lm.arpa").write_text("\n".join(arpa).replace("-1 e", "-2 e") + "\n")
    assert main(words) == 0
    assert plain.stat().st_mtime_ns == before[0] and fused.stat().st_mtime_ns != before[1]
    test = tmp_path / "data" / "librispeech" / "test-clean.jsonl"
    test.write_text("\n".join(test.read_text().splitlines()[:3]) + "\n")
    assert main(words) == 0
    assert [json.loads(each.read_text())["utterances"] for each in (plain, fused)] == [3, 3]


def test_a_lexicon_that_is_not_there_is_named_before_anything_is_trained(tmp_path, capsys):
    for name in ("train-clean-100", "dev-clean", "test-clean"):
        corpora.words(tmp_path / "data" / "librispeech", name, 4, 0)
    words = ["superb", "--upstream", "fbank", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "out")]
    assert main([*words, "--tasks", "PR", *SMALL]) == 2
    assert "PR: no " in (shown := capsys.readouterr().err) and "librispeech-lexicon-200k-g2p.txt" in shown
    assert "github.com/s3prl/s3prl" in shown and not list((tmp_path / "out").rglob("log.jsonl"))


def test_unknown_tasks_are_refused(tmp_path, capsys):
    assert main(["superb", "--upstream", "fbank", "--data", "x", "--to", str(tmp_path), "--tasks", "ASVV"]) == 2
    assert "did you mean 'ASV'" in capsys.readouterr().err


def test_what_stops_every_run_is_refused_once_before_anything_is_trained(tmp_path, capsys):
    for seed, split in enumerate(("train", "dev", "test")):
        labeled(tmp_path / "data" / "speech_commands", split, "word", seed)
    words = ["superb", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "out"), "--tasks", "KS, SID", *SMALL]
    assert main([*words, "--upstream", "hubert", "--weights", "not/there"]) == 2
    assert capsys.readouterr().err.startswith("No file or folder not/there")
    assert main([*words, "--upstream", "hubert"]) == 2
    assert "needs --weights:" in capsys.readouterr().err
    assert main([*words, "--upstream", "fbank", "task.hed.width=8"]) == 2
    assert capsys.readouterr().err.startswith("KS: override: task.hed: unknown key")
    assert not list((tmp_path / "out").rglob("log.jsonl"))
