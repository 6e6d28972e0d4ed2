import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

import attune
from attune.cli import main
from attune.errors import DataError
from attune.recordings import AudioChunk, Hints, load_audio
from attune.types import SAMPLE_RATE

from tiny_whisper import MULTILINGUAL, write_whisper

DEMO = Path(attune.__file__).parent / "demo"
MODEL = "attune://demo/model"


def demo_rows(count, split="train"):
    rows = [json.loads(line) for line in (DEMO / f"{split}.jsonl").read_text().splitlines()[:count]]
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


@pytest.mark.parametrize("normalizer", ["none", "basic", "english"])
def test_marks_that_stand_alone_change_no_time_and_words_keep_their_form(normalizer, tmp_path):
    shutil.copytree(DEMO / "model", tmp_path / "model")
    recipe = tmp_path / "model/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("normalizer: none", f"normalizer: {normalizer}"))
    model = attune.load(tmp_path / "model", "cpu")
    ((text, audio),) = demo_rows(1)
    first, *others = text.title().split()
    plain = model.align(audio, " ".join([first, *others]))
    marked = model.align(audio, " – ".join([f"- {first}", *others]))
    assert [word.text for word in marked.words] == [f"- {first} –", *(f"{word} –" for word in others[:-1]), others[-1]]
    for one, other in zip(plain.words, marked.words, strict=True):
        assert (one.start, one.end, one.confidence) == (other.start, other.end, other.confidence)
    assert marked.characters == plain.characters
    nothing = model.align(audio, "– – !")
    assert not nothing.words and not nothing.missing


def test_words_that_a_normalizer_joins_are_written_as_it_writes_them(tmp_path):
    """The model has no digits: what it would read of them is no text to train on."""
    shutil.copytree(DEMO / "model", tmp_path / "model")
    recipe = tmp_path / "model/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("normalizer: none", "normalizer: english"))
    model = attune.load(tmp_path / "model", "cpu")
    ((text, audio),) = demo_rows(1)
    found = model.align(audio, f"Twenty one {text}")
    assert [word.text for word in found.words] == ["21", *text.split()] and not found.missing
    assert model.align(audio[:3200], f"Twenty one {text}").missing == ("21", *text.split())


def test_a_weak_model_keeps_a_long_recordings_text():
    # Words and voices that it never met, four in five of them misrecognized: no reason to call them foreign speech.
    rows = demo_rows(80, "test")
    joined = np.concatenate([audio for _, audio in rows])
    found = attune.load(MODEL, "cpu").align(joined, " ".join(text for text, _ in rows))
    words, place, inside = iter(found.words), 0.0, []
    for text, audio in rows:
        after = place + len(audio) / SAMPLE_RATE
        own = [next(words, None) for _ in text.split()]
        inside += [word is not None and place - 0.08 <= word.start < word.end <= after + 0.08 for word in own]
        place = after
    assert not found.missing and np.mean(inside) >= 0.95


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
        {"id": "marks", "audio": str(folder / "lecture.wav"), "start": 0, "seconds": 0.5, "text": "– …"},
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = aligned(capsys, MODEL, tmp_path / "m.jsonl", "--to", tmp_path / "out", "--cut", "20", "--json", code=2)
    cut = json.loads(found.out)["cut"]
    assert cut["rows"] == 0 and cut["dropped"]["the text does not match the audio"] >= 1
    assert cut["dropped"]["the text is longer than its audio"] == cut["dropped"]["the row is damaged"] == 1
    assert cut["dropped"]["the text has no words, only marks"] == 1
    dropped = [json.loads(line) for line in (tmp_path / "out/dropped.jsonl").read_text().splitlines()]
    assert {row["id"].split("-")[0] for row in dropped} == {"wrong", "much", "marks"}


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


def test_recordings_that_cannot_be_read_are_one_reason_and_are_tried_again(lecture, tmp_path, capsys):
    _, rows, _ = lecture
    text, audio = rows[0]
    soundfile.write(tmp_path / "a.wav", audio, SAMPLE_RATE)
    row = {"audio": "a.wav", "text": text, "seconds": 1.0}
    lines = [{**row, "id": "early", "start": 0.0}, *({**row, "id": f"late{n}", "start": 50.0 + n} for n in range(3))]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = (MODEL, tmp_path / "m.jsonl", "--to", tmp_path / "out", "--cut", "20", "--min-confidence", "0")
    told = aligned(capsys, *options, code=2)
    assert "dropped 3: the row cannot be aligned" in told.out and told.err.count("the row asks for") == 3
    dropped = [json.loads(line) for line in (tmp_path / "out/dropped.jsonl").read_text().splitlines()]
    assert "50.00 to 51.00" in next(each["problem"] for each in dropped if each["id"] == "late0")
    assert aligned(capsys, *options, code=2).err.count("the row asks for") == 3
    soundfile.write(tmp_path / "a.wav", np.tile(audio, 60), SAMPLE_RATE)
    assert "the row asks for" not in aligned(capsys, *options).err


def test_a_text_that_was_corrected_is_aligned_again(lecture, tmp_path, capsys):
    _, rows, _ = lecture
    for name, (_, audio) in zip("ab", rows, strict=False):
        soundfile.write(tmp_path / f"{name}.wav", audio, SAMPLE_RATE)

    def cut(*texts):
        lines = [{"id": name, "audio": f"{name}.wav", "text": text} for name, text in zip("ab", texts, strict=True)]
        (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        options = ("--to", tmp_path / "out", "--cut", "20", "--min-confidence", "0", "--format", "ctm")
        aligned(capsys, MODEL, tmp_path / "m.jsonl", *options)
        kept = [json.loads(line)["text"] for line in (tmp_path / "out/rows.jsonl").read_text().splitlines()]
        return sorted(kept), (tmp_path / "out/a.ctm").read_text()

    first, second = rows[0][0], rows[1][0]
    assert cut(first, second)[0] == sorted([first, second])
    before = (tmp_path / "out/alignments.jsonl").read_text().splitlines()
    texts, ctm = cut(first.upper(), second)
    assert texts == sorted([first.upper(), second]) and first.split()[0].upper() in ctm
    assert before[1] in (tmp_path / "out/alignments.jsonl").read_text().splitlines()  # what is the same is kept


def demo_manifest(folder, rows, count):
    lines = []
    for number, (text, audio) in enumerate(rows[:count]):
        soundfile.write(folder / f"u{number}.wav", audio, SAMPLE_RATE)
        lines.append({"id": f"u{number}", "audio": f"u{number}.wav", "text": text})
    (folder / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "m.jsonl"


def test_a_few_seconds_are_not_no_hours(lecture, tmp_path, capsys):
    manifest = demo_manifest(tmp_path, lecture[1], 3)
    done = aligned(capsys, MODEL, manifest, "--to", tmp_path / "out", "--cut", "20", "--min-confidence", "0").out
    assert "rows, 0.1 min of 0.1 min" in done


def test_files_of_another_format_are_written_for_what_is_aligned_already(lecture, tmp_path, capsys):
    manifest, out = demo_manifest(tmp_path, lecture[1], 2), tmp_path / "out"
    aligned(capsys, MODEL, manifest, "--to", out)
    aligned(capsys, MODEL, manifest, "--to", out, "--format", "TextGrid")
    aligned(capsys, MODEL, manifest, "--to", tmp_path / "fresh", "--format", "TextGrid")
    for name in ("u0.TextGrid", "u1.TextGrid"):
        assert (out / name).read_text() == (tmp_path / "fresh" / name).read_text()


def test_a_folder_of_another_model_is_refused(lecture, tmp_path, capsys):
    manifest, out = demo_manifest(tmp_path, lecture[1], 1), tmp_path / "out"
    shutil.copytree(DEMO / "model", tmp_path / "other")
    aligned(capsys, MODEL, manifest, "--to", out)
    refused = aligned(capsys, tmp_path / "other", manifest, "--to", out, code=2).err
    assert f"{out} has the alignments of {MODEL}" in refused and "Name another folder" in refused
    aligned(capsys, MODEL, manifest, "--to", out)


def test_a_row_whose_text_is_too_long_is_named(lecture, tmp_path, capsys):
    (_, audio), *_ = lecture[1]
    manifest = demo_manifest(tmp_path, [("word " * 400, audio), ("— !", audio)], 2)
    for to in (("--to", tmp_path / "out"), ()):
        told = aligned(capsys, MODEL, manifest, *to, code=2).err
        assert "m.jsonl:1: utterance 'u0': the text is longer than its audio" in told
        assert "m.jsonl:2: utterance 'u1': the text has no words, only marks" in told


@pytest.mark.parametrize("option", ["--cut", "--pause", "--min-confidence"])
def test_a_value_that_is_no_number_is_named_as_it_was_written(option, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main(["align", MODEL, "m.jsonl", option, "long"])
    assert f"argument {option}: invalid number value: 'long'" in capsys.readouterr().err


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


def test_a_row_that_whisper_cannot_align_stops_no_other(lecture, tmp_path, capsys):
    folder, _, _ = lecture
    write_whisper(tmp_path / "theirs", MULTILINGUAL)
    row = {"audio": str(folder / "lecture.wav"), "start": 0.0, "seconds": 3.0, "text": "the cat sat"}
    more = ({"id": "long", "text": "word " * 600}, {"id": "lost", "language": "xx"}, {"id": "b"})
    lines = [{**row, "id": "a"}, *({**row, **each} for each in more)]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ("--to", tmp_path / "out", "--cut", "20", "--min-confidence", "0", "--language", "en")
    told = aligned(capsys, tmp_path / "theirs", tmp_path / "m.jsonl", *options, code=2)
    assert "utterance 'long' cannot be aligned. The text has" in told.err
    assert "utterance 'lost' cannot be aligned. This Whisper has no language 'xx'" in told.err
    assert "dropped 2: the row cannot be aligned" in told.out
    kept = [json.loads(line) for line in (tmp_path / "out/alignments.jsonl").read_text().splitlines()]
    assert [each["id"] for each in kept if each.get("words")] == ["a", "b"]


def test_an_unknown_language_of_a_recording_is_named_without_a_row(tmp_path):
    write_whisper(tmp_path / "theirs", MULTILINGUAL)
    model = attune.load(tmp_path / "theirs", "cpu", language="en")
    samples = np.zeros(SAMPLE_RATE, np.float32)
    with pytest.raises(DataError, match="^This Whisper has no language 'xx'"):
        model.transcribe_chunks([AudioChunk(samples, hints=Hints("xx"))])
    with pytest.raises(DataError, match="^This Whisper has no language 'xx'"):
        model.align(samples, "a", language="xx")


def test_a_text_is_needed_and_a_model_with_times():
    model = attune.load(MODEL, "cpu")
    with pytest.raises(DataError, match="Expected a text"):
        model.align(np.zeros(16000, np.float32), " ")
