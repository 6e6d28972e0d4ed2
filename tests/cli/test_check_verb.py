import json

import pytest

from attune.cli import main
from attune.testing.data import make_corpus

from miniatures import shard
from tiny import write_recipe


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path, utterances=12)


def printed(capsys, *words, code):
    assert main(["check", *map(str, words)]) == code
    return capsys.readouterr().out


def test_a_sound_recipe_is_shown_section_by_section(recipe, capsys):
    blocks = printed(capsys, recipe, "--workers", 1, code=0).split("\n\n")
    table = [line.split() for line in blocks[0].splitlines()]
    assert table[0] == ["utterances", "hours", "speakers", "shortest", "mean", "longest"]
    assert [row[:2] for row in table[1:4]] == [["train", "12"], ["dev", "6"], ["test", "6"]]
    assert blocks[0].endswith("audio: 24 utterances decoded, all good")
    assert blocks[1].startswith("warning: dev shares 6 of 6 ids with train: 00000, 00001, 00002 …")
    del blocks[1]
    assert [block.split("\n")[0] for block in blocks[1:4]] == ["plan", "learning rate", "first example"]
    assert blocks[4].startswith("model: ")
    assert blocks[5] == "Ready to train.\n"


def test_memory_of_machines_that_are_not_here_is_estimated_for_every_way_of_sharing(recipe, capsys):
    words = (recipe, "--no-audio", "--fit", "--memory", 24, "--devices", 2)
    lines = printed(capsys, *words, code=0).split("\n\n")[-1].splitlines()
    assert lines[0] == "memory of each of 2 × 24 GiB, estimated"
    assert [line.split()[0] for line in lines if "fits" in line][:4] == [
        f"train.shard={name}" for name in ("none", "optimizer", "gradients", "full")
    ]
    assert next(line for line in lines if "this recipe" in line).startswith("  train.shard=none")
    assert main(["check", str(recipe), "--memory", "24"]) == 2


def test_columns_and_values_are_aligned(recipe, capsys):
    lines = printed(capsys, recipe, "--no-audio", code=0).splitlines()
    assert len({len(line) for line in lines[:4]}) == 1
    assert "  step 1   0.005" in lines
    assert "  step 12  0.001" in lines


def test_progress_is_not_mixed_into_the_report(recipe, capsys):
    assert main(["check", str(recipe), "--workers", "1"]) == 0
    captured = capsys.readouterr()
    assert "decoding train: utt 12/12" in captured.err
    assert "decoding" not in captured.out


def test_problems_are_listed_by_line_the_first_ten_of_them(recipe, capsys):
    manifest = recipe.parent / "train/manifest.jsonl"
    manifest.write_text(manifest.read_text() + "{}\n" * 13)
    out = printed(capsys, recipe, "--no-audio", code=2)
    assert "train: 13 bad rows (fix them, or set data.bad_rows=drop)" in out
    assert f"  {manifest}:13: neither id nor audio\n" in out
    assert f"{manifest}:22:" in out and f"{manifest}:23:" not in out
    assert "  … and 3 more\n" in out
    assert out.endswith("This recipe cannot run yet.\n")
    assert "train: 13 bad rows (skipped" in printed(capsys, recipe, "--no-audio", "data.bad_rows=drop", code=0)


def test_it_is_said_what_is_left_out_of_training_and_that_evaluation_is_whole(recipe, capsys):
    out = printed(capsys, recipe, "--no-audio", "data.max_seconds=1.2", code=0)
    assert "longer than 1.2 s, 0 shorter than 0.1 s; skipped, " in out
    assert "\ndev: 2 longer than 1.2 s; scored anyway\n" in out


def test_a_training_set_of_which_nothing_is_left_is_a_problem_of_the_recipe(recipe, capsys):
    epochs = ("train.steps=null", "train.epochs=2", "train.warmup=0")  # whose steps depend on what is left
    out = printed(capsys, recipe, "--no-audio", "data.max_seconds=0.2", *epochs, code=2)
    assert "training utterances are left out: " in out and out.endswith("This recipe cannot run yet.\n")


def test_characters_outside_the_vocabulary_are_named(recipe, capsys):
    manifest = recipe.parent / "dev/manifest.jsonl"
    first, *rest = manifest.read_text().splitlines()
    manifest.write_text("\n".join([json.dumps({**json.loads(first), "text": "ça"}, ensure_ascii=False), *rest]))
    out = printed(capsys, recipe, "--no-audio", code=0)
    assert "dev: 2 characters are not in the vocabulary (utterances): 'a' in 1, 'ç' in 1" in out


def test_the_floor_of_the_score_is_named_with_its_unit(recipe, capsys):
    manifest = recipe.parent / "dev/manifest.jsonl"
    first, *rest = map(json.loads, manifest.read_text().splitlines())
    manifest.write_text("\n".join(map(json.dumps, [{**first, "text": "öne"}, *rest])))
    out = printed(capsys, recipe, "--no-audio", code=0)
    words = sum(len(row["text"].split()) for row in rest) + 1
    assert f"\ndev: wer floor (normalizer, vocabulary): {100 / words:.2f} %\n" in out
    decibels = ["task.name=toy.decibels", "train.keep_best=dev.fidelity"]
    assert "\ndev: fidelity ceiling (vocabulary): " in printed(capsys, recipe, "--no-audio", *decibels, code=0)


def test_json_has_all_that_was_found(recipe, capsys):
    found = json.loads(printed(capsys, recipe, "--no-audio", "--json", code=0))
    assert found["can_run"] is True
    assert found["splits"][0]["rows"]["utterances"] == 12
    assert found["plan"]["steps_per_epoch"] >= 1
    assert found["example"]["reads"] == found["example"]["reference"]


def test_what_fits_of_a_stream_cannot_be_tried_and_the_rest_is_reported(recipe, capsys):
    shard(recipe.parent / "shards/000.tar", ["a", "b"])
    words = ["data.train=[]", f"data.stream.shards=[{recipe.parent}/shards]", "data.stream.window=10", "--fit"]
    assert main(["check", str(recipe), *words]) == 0
    out, err = capsys.readouterr()
    assert "dev" in out and "--fit" in err and "stream" in err


def test_a_manifest_is_checked_alone(tmp_path, capsys):
    manifest = make_corpus(tmp_path, utterances=3)
    assert printed(capsys, manifest, "--workers", 1, code=0).endswith("all good\n\nNo problems found.\n")
    (tmp_path / "audio/00001.wav").write_text("not audio")
    out = printed(capsys, manifest, "--workers", 0, code=2)
    assert "manifest.jsonl: 1 with bad audio\n" in out
    assert f"  {manifest}:2: {tmp_path}/audio/00001.wav is not audio" in out
    assert out.endswith("Fix or remove these rows.\n")
    found = json.loads(printed(capsys, manifest, "--json", "--no-audio", code=0))
    assert (found["is_sound"], found["decoded"], found["utterances"]) == (True, 0, 3)


def test_a_misspelled_setting_is_reported_before_any_audio_is_decoded(recipe, capsys):
    (recipe.parent / "train/audio/00001.wav").write_text("not audio")
    assert main(["check", str(recipe), "task.normalizer=bsic", "--workers", "1"]) == 2
    captured = capsys.readouterr()
    assert "Unknown normalizer 'bsic'; did you mean 'basic'?" in captured.out
    assert "audio: not decoded; fix the problems below first" in captured.out
    assert "decoding" not in captured.err


def test_audio_n_decodes_so_many_utterances_spread_over_the_manifest(tmp_path, capsys):
    manifest = make_corpus(tmp_path, utterances=6)
    for number in (1, 2, 4, 5):
        (tmp_path / f"audio/{number:05}.wav").write_text("not audio")
    assert "audio: 2 of 6 utterances decoded, all good" in printed(capsys, manifest, "--audio", 2, code=0)
    assert "audio: 6 utterances decoded, 4 bad" in printed(capsys, manifest, "--audio", "all", code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.yaml"], "nowhere.yaml: no such file"),
        (["nowhere.jsonl"], "No file or folder nowhere.jsonl"),
        (["folder"], "folder is a folder. Give a recipe"),
        (["folder.jsonl"], "folder.jsonl is a folder. Give a manifest"),
        (["empty.jsonl"], "Manifest empty.jsonl has no rows"),
        (["empty.jsonl", "seed=3"], "empty.jsonl is a manifest; overrides such as seed=3 need a recipe."),
    ],
)
def test_what_cannot_be_checked_is_a_message(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "empty.jsonl").touch()
    assert main(["check", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
