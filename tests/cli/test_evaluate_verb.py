import csv
import io
import json

import pytest

from attune.cli import main

from tiny_whisper import MULTILINGUAL, write_whisper
from untrained import write_model


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    return write_model(folder, "task={name: classify, label: register}", "train.keep_best=null")


@pytest.fixture(scope="module")
def transcriber(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("transcriber"), "task.normalizer=basic")


def evaluated(capsys, *words, code=0):
    capsys.readouterr()
    assert main(["evaluate", *map(str, words), "--device=cpu", "--workers=0"]) == code
    return capsys.readouterr()


def test_groups_add_up_to_the_whole(transcriber, capsys):
    found = json.loads(evaluated(capsys, transcriber, "--on", "train", "--by", "speaker", "--json").out)
    groups = found["groups"]
    assert found["by"] == "speaker" and set(groups) <= {"alto", "bass", "soprano"}
    for name, count in found["counts"].items():
        assert sum(each["counts"][name] for each in groups.values()) == count


def test_a_table_has_a_row_for_each_group_the_worst_first(classifier, capsys):
    out = evaluated(capsys, classifier, "--on", "dev", "--by", "register").out
    rows = [line.split() for line in out.split("\n\n")[1].splitlines()]
    assert rows[0][:2] == ["register", "accuracy"]
    values = [float(row[1]) for row in rows[1:]]
    assert len(values) > 1 and values == sorted(values)
    by_reference = evaluated(capsys, classifier, "--on", "dev", "--by", "label").out
    assert sorted(line.split()[0] for line in by_reference.split("\n\n")[1].splitlines()[1:]) == sorted(
        row[0] for row in rows[1:]
    )


def test_what_nothing_can_be_grouped_by_is_refused_with_what_there_is(classifier, capsys):
    err = evaluated(capsys, classifier, "--on", "dev", "--by", "regsiter", code=2).err
    assert "--by: the utterances have no label 'regsiter'; did you mean 'register'?" in err


def test_confusions_of_labels_are_counted(classifier, capsys):
    found = json.loads(evaluated(capsys, classifier, "--on", "dev", "--confusions", "--json").out)
    wrong = found["counts"]["num_scored"] - found["counts"]["num_correct"]
    assert sum(each["count"] for each in found["confusions"]) == wrong > 0
    out = evaluated(capsys, classifier, "--on", "dev", "--confusions", "1").out
    first = found["confusions"][0]
    assert out.endswith(f"confusions:\n  {first['reference']} → {first['predicted']}, {first['count']} ×\n")


def test_confusions_of_words_are_those_that_are_scored(transcriber, capsys):
    found = json.loads(evaluated(capsys, transcriber, "--on", "dev", "--confusions", "999", "--json").out)
    errors = sum(found["counts"][name] for name in ("insertions", "deletions", "substitutions"))
    assert sum(each["count"] for each in found["confusions"]) == errors


def test_the_speed_is_told(transcriber, capsys):
    assert "× real time)" in evaluated(capsys, transcriber, "--on", "dev").out
    found = json.loads(evaluated(capsys, transcriber, "--on", "dev", "--json").out)
    assert found["rtf"] == pytest.approx(found["decoding_seconds"] / found["audio_seconds"], rel=0.05, abs=1e-3)


def test_predictions_are_written_as_a_table(transcriber, tmp_path, capsys):
    for suffix in ("csv", "jsonl", "json"):
        done = evaluated(capsys, transcriber, "--on", "dev", "--out", tmp_path / f"x.{suffix}")
        assert done.out.splitlines()[-1] == f"results: {tmp_path}/x.{suffix}"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "x.json").read_text()) == lines
    assert [(row["id"], row["reference"], row["value"]) for row in rows] == [
        (line["id"], line["reference"], line["value"]) for line in lines
    ]
    assert "unknown format '.srt'" in evaluated(capsys, transcriber, "--out", tmp_path / "x.srt", code=2).err


def test_scores_are_shown_before_what_needs_texts_is_refused(tmp_path, tmp_path_factory, capsys):
    frames = write_model(tmp_path_factory.mktemp("frames"), "task={name: enhance}", "train.keep_best=null")
    rows = [json.loads(line) for line in (frames.parent / "dev/manifest.jsonl").read_text().splitlines()]
    manifest = frames.parent / "dev/clean.jsonl"
    manifest.write_text("".join(json.dumps({**row, "signals": {"clean": row["audio"]}}) + "\n" for row in rows[:2]))
    done = evaluated(capsys, frames, "--on", manifest, "--alignments", tmp_path / "errors.txt", code=2)
    assert "si_sdr" in done.out and "the value is a file" in done.err


def test_the_languages_that_a_model_detected_are_told(tmp_path, transcriber, capsys):
    write_whisper(tmp_path / "theirs", MULTILINGUAL)
    assert main(["import", str(tmp_path / "theirs"), "--to", str(tmp_path / "model")]) == 0
    manifest, out = transcriber.parent / "dev/manifest.jsonl", tmp_path / "x.jsonl"
    words = (tmp_path / "model", "--on", manifest, "--by", "language", "--out", out, "--batch", 6)
    found = json.loads(evaluated(capsys, *words, "--json").out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert found["languages"] and sum(found["languages"].values()) == len(lines) == 6
    assert found["groups"].keys() == found["languages"].keys() == {line["language"] for line in lines}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--launch=ray"], "--launch ray needs --shards s3://BUCKET/PREFIX/"),
        (["--shards=decoded"], "--shards decoded is not in an object store"),
        (["--shards=s3://speech/decoded/", "--devices=2"], "--shards decodes in one process here"),
    ],
)
def test_shards_and_launchers_that_do_not_go_together_are_refused(transcriber, capsys, words, message):
    assert message in evaluated(capsys, transcriber, *words, code=2).err
