"""A recipe from data and a model, and training by any name: a shipped recipe, a run, or data."""

import json
import shutil
from pathlib import Path

import pytest

import attune
from attune import recipe as recipes
from attune.cli import main
from attune.run import Run
from attune.testing.data import make_corpus

from tiny_whisper import write_whisper


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder as the current one, with a CSV of somebody's own: `;`, own headers, paths relative to it."""
    monkeypatch.chdir(tmp_path)
    corpus = make_corpus(tmp_path / "recordings", utterances=20, seed=5)
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    lines = ["Filename;Satz", *(f"{row['audio']};{row['text']}" for row in rows)]
    (tmp_path / "recordings/clips.csv").write_text("\n".join(lines) + "\n")
    corpus.unlink()
    return tmp_path


QUICK = ["train.epochs=2", "--workers=0", "--device=cpu"]


@pytest.mark.recipe
def test_a_csv_becomes_a_fine_tuned_whisper_and_a_transcript_by_two_commands(here, capsys):
    write_whisper(here / "tiny")
    words = ["train", "recordings/clips.csv", "--model", "tiny", "model.window=trimmed", *QUICK]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "text = Satz" in err and "dev and test: 10 % of the rows each, speakers unknown" in err
    assert "train: 16 utterances" in err and "clips-tiny.yaml written (for a quick try: train.epochs=2)" in err
    assert "done: runs/clips-tiny/model" in out
    assert out.count("model.window=trimmed: fast on short clips, for use in attune.") == 1
    assert main(["transcribe", "runs/clips-tiny", "recordings/audio/00000.wav", "--device=cpu"]) == 0
    assert capsys.readouterr().out.startswith("recordings/audio/00000.wav\t")
    text = (here / "clips-tiny.yaml").read_text()
    assert text.startswith("# attune new recordings/clips.csv --model tiny\n")
    uncommented = [line for line in text.splitlines() if not line.endswith(":") and "#" not in line]
    assert uncommented == []
    data = Run(here / "runs/clips-tiny").recipe().data
    ids = [
        {json.loads(line)["id"] for line in Path(each).read_text().splitlines()}
        for (each,) in (data.train, data.dev, data.test)
    ]
    assert [len(each) for each in ids] == [16, 2, 2] and len(set.union(*ids)) == 20
    assert main(words) == 0  # the same command goes on
    out, err = capsys.readouterr()
    assert "used unchanged" in err and "nothing left to train" in out
    assert main(["train", "runs/clips-tiny", "--workers=0", "--device=cpu"]) == 0
    assert "nothing left to train" in capsys.readouterr().out


def test_what_the_data_lacks_is_a_question_with_its_columns(here, capsys):
    write_whisper(here / "tiny")
    table = here / "recordings/clips.csv"
    rows = [line.partition(";") for line in table.read_text().splitlines()[1:]]
    table.write_text("\n".join(["Filename;A;B", *(f"{audio};{text};{text}" for audio, _, text in rows)]))
    assert main(["new", "recordings/clips.csv", "--model", "tiny"]) == 2
    err = capsys.readouterr().err
    assert "has no 'text' to learn. Name its column: text=COLUMN. Columns: A, B." in err
    assert main(["new", "recordings/clips.csv", "--model", "tiny", "text=B"]) == 0
    assert (here / "data/clips-B/clips.jsonl").is_file()
    assert "Train it: attune train clips-tiny.yaml" in capsys.readouterr().out
    assert main(["new", "recordings/clips.csv"]) == 2 and "--model is missing" in capsys.readouterr().err
    assert main(["train", "recordings/clips.csv"]) == 2 and "--model MODEL" in capsys.readouterr().err
    assert main(["new", "recordings/clips.csv", "--model", "recordings"]) == 2
    assert "not a model that attune reads" in capsys.readouterr().err


def test_an_edited_recipe_is_never_replaced_and_another_is(here, capsys):
    write_whisper(here / "tiny")
    words = ["new", "recordings/clips.csv", "--model", "tiny"]
    assert main(words) == 0 and main([*words, "--language", "en"]) == 0
    recipe = here / "clips-tiny.yaml"
    assert "language: en" in recipe.read_text()
    recipe.write_text(recipe.read_text().replace("seed: 17", "seed: 18"))
    assert main([*words, "--language", "en"]) == 0 and "seed: 18" in recipe.read_text()
    capsys.readouterr()
    assert main(words) == 2 and "has been edited" in capsys.readouterr().err


def test_manifests_and_a_model_of_attunes_own_are_taken_as_they_are(here, capsys):
    for name, seed in (("train", 1), ("dev", 2)):
        (here / name).mkdir()
        shutil.copy(make_corpus(here / "all" / name, utterances=4, seed=seed), here / "all" / f"{name}.jsonl")
    made = attune.new("attune://demo/train.jsonl", "attune://demo/model", to="demo-of-mine.yaml", run="runs/mine")
    recipe = recipes.load(made).recipe
    assert recipe.model.family == "ssl" and recipe.model.config.weights == "attune://demo/model"
    assert recipe.task.config.head.width == 160 and recipe.run == "runs/mine"
    own = recipes.load(attune.new("all", "attune://demo/model")).recipe
    assert own.data.dev == ("all/dev.jsonl",) and own.data.test == ()


def test_a_shipped_recipe_is_named_without_a_path(here, capsys):
    assert main(["show", "demo", "train.steps=30"]) == 0 and "steps: 30" in capsys.readouterr().out
    assert main(["show", "whispr"]) == 2
    assert "no shipped recipe 'whispr'; did you mean 'whisper'?" in capsys.readouterr().err
    assert main(["train", "demmo"]) == 2 and "did you mean 'demo'?" in capsys.readouterr().err
    assert main(["list", "recipes"]) == 0 and "\n  demo  " in capsys.readouterr().out


def test_a_model_is_not_a_run_to_go_on_with(here, capsys):
    model = str(recipes.catalog.shipped_recipes()["demo"].parents[1] / "demo/model")
    assert main(["train", model]) == 2
    assert f"is a model, not a run. To train from it: attune train DATA --model {model}" in capsys.readouterr().err
