"""A recipe from data and a model, and training by any name: a shipped recipe, a run, or data."""

import json
import os
import shutil
from pathlib import Path

import pytest

import attune
from attune import recipe as recipes
from attune.cli import main
from attune.run import Run
from attune.stages.new_data import short_name
from attune.testing.data import make_corpus

import miniatures
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
    assert "text = Satz" in err and "dev: 10 %, test: 10 % of the rows, speakers unknown" in err
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


@pytest.mark.parametrize("separator", ["\u2028", "\x85"])
def test_a_text_with_a_line_separator_is_one_row(here, separator):
    """Web pages are full of them; the manifest has them as they are, and its lines end with newlines alone."""
    write_whisper(here / "tiny")
    table = here / "recordings/clips.csv"
    header, _, rows = table.read_text().partition("\n")
    table.write_text(f"{header}\n{rows.replace(';', f';now{separator}')}")
    assert main(["new", "recordings/clips.csv", "--model", "tiny"]) == 0
    data = recipes.load(here / "clips-tiny.yaml").recipe.data
    rows = [row for (each,) in (data.train, data.dev, data.test) for row in Path(each).read_text().split("\n") if row]
    assert len(rows) == 20 and any(separator in json.loads(row)["text"] for row in rows)


def test_rows_that_cannot_be_used_are_counted(here, capsys):
    table = here / "recordings/clips.csv"
    table.write_text(f"{table.read_text()}nowhere.flac;words\n")
    assert main(["new", "recordings/clips.csv", "--model", "attune://demo/model"]) == 0
    err = capsys.readouterr().err
    assert "skipped 1: missing audio file" in err and "tried " in err
    miniatures.text(here / "bad/manifest.jsonl", '{"audio": "nowhere.flac", "text": "words"}')
    miniatures.text(here / "bare/manifest.jsonl", "")
    for data, problem in (("bad", "can be used (1 × missing audio file). Fix"), ("bare", "can be used. Fix")):
        assert main(["new", data, "--model", "attune://demo/model"]) == 2 and problem in capsys.readouterr().err


def test_data_that_is_too_little_to_hold_some_out_is_refused_with_what_to_do(here, capsys):
    miniatures.audio(here / "one/a.wav")
    miniatures.text(here / "one/manifest.jsonl", '{"id": "a", "audio": "a.wav", "text": "words"}')
    assert main(["new", "one", "--model", "attune://demo/model"]) == 2
    assert "one has 1 row, too little to hold out dev and test. Add more, or give" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("counts", "sizes", "note"),
    [
        (
            {"anna": 26, "ben": 2, "carl": 2},
            [26, 2, 2],
            "dev: 7 %, test: 7 % of the rows, other speakers than in train",
        ),
        ({"anna": 10, "ben": 10, "carl": 10}, [24, 3, 3], "of the rows, too few speakers to keep them apart"),
        ({"anna": 16, "ben": 9, "carl": 5}, [16, 9, 5], "dev: 30 %, test: 17 % of the rows, other speakers"),
    ],
)
def test_training_keeps_most_of_the_data_whoever_speaks_it(here, counts, sizes, note, capsys):
    names = [name for name, count in counts.items() for _ in range(count)]
    for number in range(len(names)):
        miniatures.audio(here / f"own/{number}.wav")
    rows = [
        {"id": f"r{number}", "audio": f"{number}.wav", "seconds": 1.0, "text": "words", "speaker": name}
        for number, name in enumerate(names)
    ]
    miniatures.text(here / "own/manifest.jsonl", *map(json.dumps, rows))
    assert main(["new", "own", "--model", "attune://demo/model"]) == 0
    held_out = [here / f"own/manifest-{split}.jsonl" for split in ("train", "dev", "test")]
    assert [len(each.read_text().splitlines()) for each in held_out] == sizes
    assert note in capsys.readouterr().err


def test_what_cannot_be_trained_is_refused_before_anything_is_written(here, capsys):
    write_whisper(here / "tiny")
    words = ["new", "recordings/clips.csv", "--model", "tiny"]
    for more, message in (
        (["--task", "classify", "--label", "Satz"], "The family 'whisper' cannot learn the task 'classify'"),
        (["--task", "clasify"], "Unknown task 'clasify'; did you mean 'classify'?"),
        (["--to", "recordings"], "recordings is a folder. Give --to a file."),
        (["epochs=2"], "A value of the recipe has its section: train.epochs=…"),
    ):
        assert main([*words, *more]) == 2 and message in capsys.readouterr().err
    assert not list(here.glob("*.yaml")) and not list(here.glob("data/*/*.jsonl"))


def test_data_that_has_changed_since_is_noticed(here, capsys):
    words = ["new", "recordings/clips.csv", "--model", "attune://demo/model"]
    assert main(words) == 0 and main(words) == 0
    assert "has changed" not in capsys.readouterr().err
    table = here / "recordings/clips.csv"
    table.write_text(table.read_text())
    assert main(words) == 0
    err = capsys.readouterr().err
    assert "warning: recordings/clips.csv has changed since data/clips/clips-train.jsonl was made of it" in err
    assert "remove clips-model.yaml and data/clips, and set another run=" in err


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("calls.2023.csv", "calls.2023"),
        ("corpus.tar.gz", "corpus"),
        ("hf://openai/whisper-tiny.en", "whisper-tiny.en"),
        ("hf://datasets/org/set@main", "set"),
        ("runs/mine@step-400", "mine"),
        ("https://example.org/calls.zip?download=1#sha256=0", "calls"),
        ("models/fast.NEMO", "fast"),
        ("runs/mine@best", "mine"),
        (".csv", "data"),
    ],
)
def test_an_experiment_is_called_as_its_data_and_model(source, name):
    assert short_name(source) == name


def test_the_folder_one_is_in_has_a_name_too(here):
    (here / "calls").mkdir()
    os.chdir(here / "calls")
    assert short_name(".") == "calls"


def test_words_that_would_have_no_effect_are_refused(here, capsys):
    words = ["new", "attune://demo/train.jsonl", "--model", "attune://demo/model"]
    assert main([*words, "--to", "mine.yaml"]) == 0
    make_corpus(here / "own", utterances=20, seed=5)
    for word in ("text=words", "optimizer.lr=1e-4"):
        assert main(["new", "own", word, "--model", "attune://demo/model"]) == 2
        assert f"{word.partition('=')[0].partition('.')[0]}: unknown key (known: root)" in capsys.readouterr().err


def test_a_task_without_its_label_is_a_question(here, capsys):
    make_corpus(here / "own", utterances=20, seed=5)
    words = ["new", "own", "--model", "attune://demo/model", "--task", "classify"]
    assert main(words) == 2
    assert (
        "has no 'label' to learn. Name its column: --label COLUMN. Columns: text, speaker, register."
        in capsys.readouterr().err
    )
    assert main([*words, "--label", "speaker+register"]) == 0


def test_a_manifest_with_rows_that_cannot_be_used_as_they_are_is_prepared(here, capsys):
    manifest = make_corpus(here / "own", utterances=20, seed=5)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[1]["text"] = "broken\u2028line"  # no end of a line of JSON
    words = ["new", "own", "--model", "attune://demo/model"]
    manifest.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    assert main(words) == 0 and "read as" not in capsys.readouterr().err
    assert main([*words, "--to", "again.yaml"]) == 0  # what was held out is no manifest of its own
    capsys.readouterr()
    for problem in ("{damaged", json.dumps({**rows[0], "seconds": "long"}), json.dumps({**rows[0], "text": ""})):
        shutil.rmtree(here / "data", ignore_errors=True)
        manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + f"{problem}\n")
        assert main([*words, "--to", "third.yaml"]) == 0
        assert "own/manifest.jsonl: read as nemo" in (err := capsys.readouterr().err) and "skipped 1: " in err
        (here / "third.yaml").unlink()
    manifest.write_text("".join(json.dumps({**row, "seconds": None}) + "\n" for row in rows))
    shutil.rmtree(here / "data")
    assert main([*words, "--to", "fourth.yaml"]) == 0 and "train: 16 utterances, 0.3 min" in capsys.readouterr().err


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
