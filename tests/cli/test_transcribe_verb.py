import json
import shutil
from pathlib import Path

import pytest

import attune
from attune.cli import main
from attune.cli._recordings import audio_files
from attune.corpora import open_corpus
from attune.loading.begin import begin_model
from attune.loading.pretrained import ModelFolders, export
from attune.recipe import load
from attune.run import Run
from attune.site import this_site
from attune.world import World

from tiny import write_recipe


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that has learned nothing; what it says is the same every time."""
    folder = tmp_path_factory.mktemp("model")
    recipe = load(write_recipe(folder, utterances=3)).recipe
    run = Run(folder)
    corpus = open_corpus("train", [folder / "train/manifest.jsonl"], run.data)
    begun = begin_model(recipe, corpus, ModelFolders(run.task, run.assets), this_site(), World.alone())
    export(run.model, recipe, run, begun.loaded.task_model)
    return run.model


@pytest.fixture
def recordings(model, tmp_path, monkeypatch):
    """A folder, made the current one, with three recordings in `audio` and a text file beside them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audio").mkdir()
    for number in range(3):
        shutil.copy(model.parent / f"train/audio/0000{number}.wav", tmp_path / "audio")
    (tmp_path / "audio/notes.txt").write_text("not audio")
    (tmp_path / "text.wav").write_text("not audio either")
    return tmp_path


def transcribed(capsys, *words, code=0):
    capsys.readouterr()
    assert main(["transcribe", *map(str, words), "--device", "cpu"]) == code
    return capsys.readouterr()


def test_each_file_is_a_line_and_a_folder_stands_for_its_audio_files(model, recordings, capsys):
    lines = transcribed(capsys, model, "audio/00002.wav", "audio").out.splitlines()
    paths, texts = zip(*(line.split("\t") for line in lines), strict=True)
    assert paths == ("audio/00002.wav", "audio/00000.wav", "audio/00001.wav", "audio/00002.wav")
    assert texts[0] == texts[3] != texts[1]


def test_a_folder_stands_for_its_subfolders_too_but_not_for_hidden_files(recordings):
    (recordings / "audio/anna").mkdir()
    for name in ("anna/a.wav", "._00000.wav"):
        shutil.copy(recordings / "audio/00000.wav", recordings / "audio" / name)
    assert list(audio_files(["audio"])) == [f"audio/{name}.wav" for name in ("00000", "00001", "00002", "anna/a")]


def test_the_search_is_changed_as_for_an_evaluation(model, recordings, capsys):
    search = {"search": "beam", "beam": 3, "precision": "bf16"}
    expected = attune.load(model, device="cpu", decode=search)
    assert (expected.search.kind, expected.search.beam, expected.search.precision) == ("beam", 3, "bf16")
    words = [f"decode.{name}={value}" for name, value in search.items()]
    printed = transcribed(capsys, model, "audio/00002.wav", *words, "--json").out
    assert json.loads(printed)[0]["text"] == expected.transcribe("audio/00002.wav")
    assert "decode.beam" in transcribed(capsys, model, "audio", "decode.search=beam", "decode.beam=0", code=2).err
    assert "no audio file" in transcribed(capsys, model, "decode.search=beam", code=2).err


def test_a_folder_stands_for_its_audio_files_of_every_format(tmp_path):
    for name in ("a.m4a", "b.webm", "c.AMR", "d.wav", "notes.txt"):
        (tmp_path / name).touch()
    assert [Path(found).name for found in audio_files([str(tmp_path)])] == ["a.m4a", "b.webm", "c.AMR", "d.wav"]


def test_how_files_are_batched_does_not_change_a_text(model, recordings, capsys, monkeypatch):
    together = transcribed(capsys, model, "audio").out
    monkeypatch.setattr("attune.recognizer.BATCH_SECONDS", 0.1)
    assert transcribed(capsys, model, "audio").out == together


def test_bad_files_are_named_and_the_others_transcribed(model, recordings, capsys):
    (recordings / "empty").mkdir()
    found = transcribed(capsys, model, "text.wav", "nowhere.wav", "empty", "audio/00001.wav", code=2)
    assert found.out.startswith("audio/00001.wav\t")
    errors = found.err.splitlines()
    assert len(errors) == 3
    assert "text.wav is not audio" in errors[0]
    assert "No file or folder nowhere.wav" in errors[1]
    assert "empty has no audio files" in errors[2]


def test_json_keeps_the_order_and_has_the_problems(model, recordings, capsys):
    found = json.loads(transcribed(capsys, model, "text.wav", "audio/00000.wav", "--json", code=2).out)
    assert [entry["path"] for entry in found] == ["text.wav", "audio/00000.wav"]
    assert found[0]["text"] is None and "is not audio" in found[0]["problem"]
    assert isinstance(found[1]["text"], str) and found[1]["problem"] is None


def test_what_is_no_model_is_a_message(recordings, capsys):
    assert "No file or folder nowhere" in transcribed(capsys, "nowhere", "text.wav", code=2).err
    assert "is not a run, a model or a recipe" in transcribed(capsys, "audio", "text.wav", code=2).err


def test_a_place_that_cannot_be_written_is_told_before_anything_is_transcribed(model, recordings, capsys):
    for place in ("/proc/nowhere/out.jsonl", str(recordings)):
        assert main(["transcribe", str(model), str(recordings), "--out", place]) == 2
        out, err = capsys.readouterr()
        assert out == "" and f"Cannot write {place}" in err


def test_a_folder_of_subtitles_is_named_in_the_end_and_not_written_twice(model, recordings, capsys):
    asked = (model, "audio", "--out", "subtitles", "--format", "srt")
    assert transcribed(capsys, *asked).err == "results: subtitles\n"
    assert sorted(path.name for path in Path("subtitles").iterdir()) == ["00000.srt", "00001.srt", "00002.srt"]
    again = transcribed(capsys, *asked)
    assert again.out == "" and again.err == "Nothing to do: subtitles has the results of all recordings.\n"
    message = transcribed(capsys, model, "audio", "--out", "audio.srt", "--format", "vtt", code=2).err
    assert "--out audio.srt names a file, and --format a folder of files" in message and not Path("audio.srt").exists()


def test_a_model_without_files_is_a_usage_error(model):
    with pytest.raises(SystemExit) as exit:
        main(["transcribe", str(model)])
    assert exit.value.code == 2


@pytest.mark.parametrize(("former", "now"), [("pauses", "vad"), ("windows", "timestamps")])
def test_the_former_option_for_long_recordings_is_answered_with_the_new_one(former, now, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["transcribe", "model", "x.wav", "--long", former])
    assert exit.value.code == 2
    assert f"use --chunking {now}" in capsys.readouterr().err


def test_recordings_of_one_name_in_subfolders_keep_their_folders(model, recordings, capsys):
    for name in ("monday", "tuesday"):
        (recordings / "audio" / name).mkdir()
        shutil.copy(recordings / "audio/00001.wav", recordings / "audio" / name / "a.wav")
    words = (model, "audio", "--out", "captions", "--format", "TextGrid")
    transcribed(capsys, model, "audio/monday", *words[2:])
    transcribed(capsys, *words)
    written = sorted(path.relative_to("captions").as_posix() for path in Path("captions").rglob("*.TextGrid"))
    numbers = [f"0000{number}.TextGrid" for number in range(3)]
    assert written == [*numbers, "a.TextGrid", "monday/a.TextGrid", "tuesday/a.TextGrid"]
    assert "Nothing to do" in transcribed(capsys, *words).err
    transcribed(capsys, model, "audio", "audio/00001.wav", "--out", "all.ctm")
    names = [line.split()[0] for line in Path("all.ctm").read_text().splitlines()]
    assert {"00001", "monday/a", "tuesday/a"} <= set(names) and names.count("00001") == names.count("monday/a")
    transcribed(capsys, model, "audio/monday", "--out", "one.ctm")
    assert Path("one.ctm").read_text().startswith("a 1 ")
    refused = transcribed(capsys, model, "audio/monday/a.wav", "audio/tuesday/a.wav", "--out", "b.ctm", code=2).err
    assert "two recordings would both be a in it" in refused


@pytest.mark.parametrize("suffix", ["srt", "TextGrid", "txt"])
def test_a_file_of_nothing_is_not_written(suffix, model, recordings, capsys):
    failed = transcribed(capsys, model, "text.wav", "--out", f"x.{suffix}", code=2).err
    assert not Path(f"x.{suffix}").exists() and "results:" not in failed
