import csv
import io
import json
import shutil

import numpy as np
import pytest

from attune.api import load as load_model
from attune.cli import main

from tiny_whisper import MULTILINGUAL, write_whisper
from untrained import write_model


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return write_model(
        tmp_path_factory.mktemp("classifier"), "task={name: classify, label: text}", "train.keep_best=null"
    )


@pytest.fixture(scope="module")
def transcriber(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("transcriber"))


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """A Whisper that detects languages."""
    folder = tmp_path_factory.mktemp("whisper")
    write_whisper(folder / "theirs", MULTILINGUAL)
    assert main(["import", str(folder / "theirs"), "--to", str(folder / "model")]) == 0
    return folder / "model"


@pytest.fixture
def recordings(classifier, tmp_path, monkeypatch):
    """A folder, made the current one, with three recordings in `audio`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audio").mkdir()
    for number in range(3):
        shutil.copy(classifier.parent / f"train/audio/0000{number}.wav", tmp_path / "audio")
    return tmp_path


def attune(capsys, *words, code=0):
    capsys.readouterr()
    assert main([*map(str, words), "--device", "cpu"]) == code
    return capsys.readouterr()


def test_a_classifier_is_used_from_the_shell(classifier, recordings, capsys):
    labels = load_model(classifier, "cpu").classify(sorted(map(str, recordings.glob("audio/*.wav"))))
    lines = [line.split("\t") for line in attune(capsys, "predict", classifier, "audio").out.splitlines()]
    assert [path for path, _, _ in lines] == [f"audio/0000{number}.wav" for number in range(3)]
    assert [label for _, label, _ in lines] == labels
    assert all(0 < float(probability) <= 1 for _, _, probability in lines)


def test_labels_are_a_table_with_their_probabilities(classifier, recordings, capsys):
    (recordings / "text.wav").write_text("no audio")
    out = attune(capsys, "predict", classifier, "audio", "text.wav", "--out", "labels.csv", "--json", code=2).out
    rows = list(csv.DictReader((recordings / "labels.csv").read_text().splitlines()))
    assert [row["path"] for row in rows] == [f"audio/0000{number}.wav" for number in range(3)]
    found = json.loads(out)
    assert [row["value"] for row in rows] == [each["value"] for each in found[:3]]
    assert float(rows[0]["probability"]) == found[0]["probability"] and rows[0]["file"] == ""
    assert "is not audio" in found[3]["problem"]


def test_predict_transcribes_where_that_is_the_task(transcriber, recordings, capsys):
    assert attune(capsys, "predict", transcriber, "audio").out == attune(capsys, "transcribe", transcriber, "audio").out


def test_each_format_has_the_same_texts(transcriber, recordings, capsys):
    texts = [line.split("\t")[1] for line in attune(capsys, "transcribe", transcriber, "audio").out.splitlines()]
    for suffix in ("jsonl", "json", "csv", "tsv", "txt"):
        attune(capsys, "transcribe", transcriber, "audio", "--out", f"x.{suffix}")
    written = {path.suffix: path.read_text() for path in recordings.glob("x.*")}
    assert [json.loads(line)["text"] for line in written[".jsonl"].splitlines()] == texts
    assert [row["text"] for row in json.loads(written[".json"])] == texts
    assert [row["text"] for row in csv.DictReader(written[".csv"].splitlines())] == texts
    assert [line.split("\t")[2] for line in written[".tsv"].splitlines()] == ["text", *texts]
    assert written[".txt"].splitlines() == texts


def test_captions_are_a_file_per_recording(transcriber, recordings, capsys):
    found = json.loads(attune(capsys, "transcribe", transcriber, "audio", "--json").out)
    refused = attune(capsys, "transcribe", transcriber, "audio", "--out", "x.srt", code=2).err
    assert "one file per recording, and there are 3. Name a folder: --out x --format srt" in refused
    attune(capsys, "transcribe", transcriber, "audio", "--out", "captions", "--format", "srt")
    assert sorted(path.name for path in (recordings / "captions").iterdir()) == [f"0000{n}.srt" for n in range(3)]
    number, times, *lines = (recordings / "captions/00000.srt").read_text().splitlines()
    first = found[0]["words"][0]
    assert 0 <= first["start"] < first["end"] and number == "1"
    assert times.startswith(f"00:00:{first['start']:06.3f} --> ".replace(".", ","))
    assert lines[0].split()[0] == first["text"]
    attune(capsys, "transcribe", transcriber, "audio/00000.wav", "--out", "one.srt")
    assert (recordings / "one.srt").read_text() == (recordings / "captions/00000.srt").read_text()
    (recordings / "captions/00001.srt").unlink()
    again = attune(capsys, "transcribe", transcriber, "audio", "--out", "captions", "--format", "srt").out
    assert [line.split("\t")[0] for line in again.splitlines()] == ["audio/00001.wav"]
    attune(capsys, "transcribe", transcriber, "audio/00000.wav", "--out", "x.vtt")
    assert (recordings / "x.vtt").read_text().startswith("WEBVTT\n\n00:00:0")
    attune(capsys, "transcribe", transcriber, "audio", "--out", "all.ctm")
    ctm = [line.split() for line in (recordings / "all.ctm").read_text().splitlines()]
    assert {row[0] for row in ctm} <= {"00000", "00001", "00002"} and all(len(row) == 6 for row in ctm)
    attune(capsys, "transcribe", transcriber, "audio/00000.wav", "--out", "grids", "--format", "TextGrid")
    assert "ooTextFile" in (recordings / "grids/00000.TextGrid").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--out", "x.docx"],
            "--out x.docx: unknown format '.docx' (known: .ass, .csv, .ctm, .json, .jsonl, .srt, .textgrid, .tsv,",
        ),
        (["--out", "x.cvs"], "did you mean '.csv'?"),
        (["--out", "x", "--format", "doc"], "unknown format '.doc'"),
        (["--format", "srt"], "--format needs --out FOLDER."),
    ],
)
def test_a_format_that_there_is_not_is_refused_before_anything_is_loaded(words, told, recordings, capsys):
    assert told in attune(capsys, "transcribe", "no-model", "audio", *words, code=2).err


def test_captions_are_for_transcripts(classifier, recordings, capsys):
    assert "unknown format '.srt'" in attune(capsys, "predict", classifier, "audio", "--out", "x.srt", code=2).err
    assert "trained to classify" in attune(capsys, "predict", classifier, "audio", "--nbest=2", "--json", code=2).err


@pytest.mark.parametrize("chunking", ["vad", "timestamps"])
def test_whisper_tells_segments_and_the_language_it_detected(whisper, recordings, capsys, chunking):
    words = ("transcribe", whisper, "audio/00000.wav", "audio/00001.wav", "--chunking", chunking)
    found = json.loads(attune(capsys, *words, "--json", "--out", "x.csv").out)
    assert all(row["language"] in ("en", "be", "th", "no") for row in found)
    assert all(segment["start"] < segment["end"] < 4 for row in found for segment in row["segments"])
    assert [row["language"] for row in csv.DictReader(io.StringIO((recordings / "x.csv").read_text()))] == [
        row["language"] for row in found
    ]
    if chunking == "vad":
        assert [row["text"] for row in found] == [row["segments"][0]["text"] for row in found]
        given = json.loads(attune(capsys, *words, "--json", "--language", "th").out)
        assert {row["language"] for row in given} == {"th"}


def test_audio_made_of_recordings_with_one_name_is_not_written_over(recordings, tmp_path_factory, capsys):
    task = "task={name: convert_voice, envelope: spectrum, head: {layers: 1, width: 8, iterations: 1}}"
    model = write_model(tmp_path_factory.mktemp("voice"), task, "train.keep_best=null")
    (recordings / "other").mkdir()
    shutil.copy(recordings / "audio/00001.wav", recordings / "other/00000.wav")
    found = json.loads(attune(capsys, "predict", model, "audio", "other", "--json").out)
    files = [each["file"] for each in found]
    assert len(set(files)) == 4 and all((recordings / file).is_file() for file in files)
    assert files[1] == "predicted/00001.wav"


def test_frames_are_written_beside_the_results(recordings, tmp_path_factory, capsys):
    model = write_model(tmp_path_factory.mktemp("frames"), "task={name: spot_queries}", "train.keep_best=null")
    found = json.loads(attune(capsys, "predict", model, "audio", "--out", "found/x.jsonl", "--json").out)
    assert [each["file"] for each in found] == [f"found/predicted/0000{number}.npy" for number in range(3)]
    assert all(np.load(recordings / each["file"]).ndim == 2 for each in found)
