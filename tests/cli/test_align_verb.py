import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

import attune
from attune.cli import main
from attune.errors import DataError
from attune.recordings import load_audio
from attune.types import SAMPLE_RATE

from tiny_whisper import MULTILINGUAL, write_whisper

DEMO = Path(attune.__file__).parent / "demo"
MODEL = "attune://demo/model"


def demo_rows(count):
    rows = [json.loads(line) for line in (DEMO / "train.jsonl").read_text().splitlines()[:count]]
    return [(row["text"], load_audio(DEMO / row["audio"])) for row in rows]


@pytest.fixture(scope="module")
def lecture(tmp_path_factory):
    """Six utterances of the demo joined to one recording, its manifest, and where each of them begins and ends."""
    folder = tmp_path_factory.mktemp("lecture")
    rows = demo_rows(6)
    ends = np.cumsum([len(audio) for _, audio in rows]) / SAMPLE_RATE
    soundfile.write(folder / "lecture.wav", np.concatenate([audio for _, audio in rows]), SAMPLE_RATE)
    text = ", ".join(text.capitalize() for text, _ in rows)
    (folder / "lecture.jsonl").write_text(json.dumps({"id": "l1", "audio": "lecture.wav", "text": text}) + "\n")
    return folder, rows, [0.0, *ends.tolist()]


def aligned(capsys, *words, code=0):
    capsys.readouterr()
    assert main(["align", *map(str, words), "--device", "cpu"]) == code
    return capsys.readouterr()


def test_words_of_a_joined_recording_lie_in_their_own_parts(lecture, capsys):
    folder, rows, joins = lecture
    (found,) = json.loads(aligned(capsys, MODEL, folder / "lecture.jsonl", "--json").out)
    words = iter(found["words"])
    inside = []
    for (text, _), start, end in zip(rows, joins, joins[1:], strict=False):
        own = [next(words) for _ in text.split()]
        assert [word["text"].strip(",").lower() for word in own] == text.split()  # written as the manifest has them
        inside += [start - 0.08 <= word["start"] < word["end"] <= end + 0.08 for word in own]
    assert np.mean(inside) >= 0.95
    letters = "".join(each["text"] for each in found["characters"])
    assert letters == "".join(text for text, _ in rows).replace(" ", "")


def test_a_long_recording_becomes_rows_that_can_be_trained_on(lecture, tmp_path, capsys):
    folder, rows, _ = lecture
    options = ("--to", tmp_path / "out", "--format", "TextGrid", "--cut", "4", "--min-confidence", "0")
    told = aligned(capsys, MODEL, folder / "lecture.jsonl", *options).out
    cut = [json.loads(line) for line in (tmp_path / "out/rows.jsonl").read_text().splitlines()]
    assert f"{len(cut)} rows" in told and len(cut) >= 3
    assert " ".join(row["text"] for row in cut).lower().replace(",", "") == " ".join(text for text, _ in rows)
    assert all(row["start"] >= 0 and row["seconds"] <= 4 for row in cut)
    assert (tmp_path / "out" / cut[0]["audio"]).resolve() == folder / "lecture.wav"
    assert (tmp_path / "out/l1.TextGrid").is_file()


def test_what_does_not_match_is_dropped_with_its_reason(lecture, tmp_path, capsys):
    folder, _, _ = lecture
    other = " ".join(text for text, _ in demo_rows(14)[8:])
    lines = [
        {"id": "wrong", "audio": str(folder / "lecture.wav"), "text": other},
        {"id": "none", "audio": str(folder / "missing.wav"), "text": "x", "seconds": 3},
        {"id": "much", "audio": str(folder / "lecture.wav"), "start": 0, "seconds": 0.5, "text": other},
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = aligned(capsys, MODEL, tmp_path / "m.jsonl", "--to", tmp_path / "out", "--cut", "20", "--json", code=2)
    cut = json.loads(found.out)["cut"]
    assert cut["rows"] == 0 and cut["dropped"]["the text does not match the audio"] >= 1
    assert cut["dropped"]["the text is longer than its audio"] == cut["dropped"]["the row is damaged"] == 1
    dropped = [json.loads(line) for line in (tmp_path / "out/dropped.jsonl").read_text().splitlines()]
    assert {row["id"].split("-")[0] for row in dropped} == {"wrong", "much"}


def test_a_folder_is_continued_where_it_was_cut_off(lecture, tmp_path, capsys):
    _, rows, _ = lecture
    names = [f"u{number}" for number in range(4)]
    for name, (_, audio) in zip(names, rows, strict=False):
        soundfile.write(tmp_path / f"{name}.wav", audio, SAMPLE_RATE)
    lines = [{"id": name, "audio": f"{name}.wav", "text": text} for name, (text, _) in zip(names, rows, strict=False)]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    aligned(capsys, MODEL, tmp_path / "m.jsonl", "--to", tmp_path / "out")
    whole = (tmp_path / "out/alignments.jsonl").read_text()
    assert [json.loads(line)["id"] for line in whole.splitlines()] == names
    (tmp_path / "out/alignments.jsonl").write_text(whole[: len(whole) // 2])
    aligned(capsys, MODEL, tmp_path / "m.jsonl", "--to", tmp_path / "out")
    assert (tmp_path / "out/alignments.jsonl").read_text() == whole


def test_formats_go_by_the_name_of_a_file_and_ctm_to_the_terminal(lecture, tmp_path, capsys):
    folder, _, _ = lecture
    ctm = aligned(capsys, MODEL, folder / "lecture.jsonl").out
    aligned(capsys, MODEL, folder / "lecture.jsonl", "--to", tmp_path / "x.ctm")
    assert (tmp_path / "x.ctm").read_text() == ctm and ctm.startswith("l1 1 ")
    for name, start in (("x.srt", "1\n00:00:0"), ("x.ass", "[Script Info]"), ("x.TextGrid", "File type")):
        aligned(capsys, MODEL, folder / "lecture.jsonl", "--to", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
    refused = aligned(capsys, MODEL, folder / "lecture.jsonl", "--to", tmp_path / "x.doc", code=2).err
    assert "unknown format '.doc'" in refused
    assert "need --to FOLDER" in aligned(capsys, MODEL, folder / "lecture.jsonl", "--cut", "9", code=2).err


def test_whisper_aligns_recordings_of_any_length(lecture, tmp_path, capsys):
    folder, _, _ = lecture
    write_whisper(tmp_path / "theirs", MULTILINGUAL)
    model = attune.load(tmp_path / "theirs", "cpu", language="en")
    samples = load_audio(folder / "lecture.wav")
    for audio in (samples[: 3 * SAMPLE_RATE], np.concatenate([samples] * 4)):  # the longer one has to be cut
        found = model.align(audio, "the cat sat on a mat")
        assert [word.text for word in found.words] == ["the", "cat", "sat", "on", "a", "mat"]
        assert all(word.start < word.end <= len(audio) / SAMPLE_RATE + 0.01 for word in found.words)


def test_a_text_is_needed_and_a_model_with_times():
    model = attune.load(MODEL, "cpu")
    with pytest.raises(DataError, match="Expected a text"):
        model.align(np.zeros(16000, np.float32), " ")
