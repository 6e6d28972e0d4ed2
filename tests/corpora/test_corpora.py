"""Every corpus on a miniature of its real layout: what becomes a row, what does not, and the promises of all."""

import gzip
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from attune import catalog
from attune.audio.decode import read_utterance
from attune.cli import main
from attune.corpora import CORPORA, CorpusPaths, open_manifest, prepare_split
from attune.corpora._rows import Row
from attune.corpora.common_voice import normalize_letters, superb_text
from attune.corpora.switchboard import clean_transcript
from attune.errors import DataError
from attune.sources import content_of
from attune.testing import check_corpus

import miniatures
from miniatures import prepare
from processes import KillPoints, start, wait

MINIATURES = {
    "librispeech": miniatures.librispeech,
    "mini_librispeech": lambda root: miniatures.librispeech(root, ("train-clean-5", "dev-clean-2")),
    "common_voice": miniatures.common_voice,
    "tedlium": miniatures.tedlium,
    "an4": miniatures.an4,
    "speech_commands": miniatures.speech_commands,
    "fluent_speech_commands": miniatures.fluent,
    "iemocap": miniatures.iemocap,
    "folder": miniatures.folder,
    "kaldi": miniatures.kaldi,
    "lhotse": miniatures.lhotse,
}


@pytest.mark.parametrize("name", MINIATURES)
def test_a_corpus_keeps_its_promises(name, tmp_path):
    check_corpus(catalog.find(CORPORA, name), MINIATURES[name](tmp_path))


def test_every_corpus_that_is_listed_is_a_layout():
    names = catalog.names(CORPORA)
    assert len(names) == 25
    assert all(callable(catalog.find(CORPORA, name).read) for name in names)


def test_librispeech_rows_have_speaker_and_text_and_a_lost_file_is_told(tmp_path):
    splits, left_out = prepare("librispeech", miniatures.librispeech(tmp_path), tmp_path / "to")
    assert list(splits) == ["train-clean-100", "dev-clean", "test-clean"]
    first = splits["train-clean-100"][0]
    assert (first.id, first.speaker, first.text) == ("100-7-0000", "100", "HELLO NUMBER 0")
    assert first.seconds == pytest.approx(0.3)
    assert left_out["train-clean-100"] == {"missing audio file": 1} and left_out["dev-clean"] == {}


def test_a_librispeech_set_alone_is_read_from_within(tmp_path):
    root = miniatures.librispeech(tmp_path, ("dev-clean-2",))
    for inside in ("", "LibriSpeech", "LibriSpeech/dev-clean-2", "LibriSpeech/dev-clean-2/100/7"):
        splits, _ = prepare("mini_librispeech", root / inside, tmp_path / "to" / inside.replace("/", "-"))
        assert {name: len(rows) for name, rows in splits.items()} == {"dev-clean-2": 3}


def test_a_folder_that_is_no_librispeech_is_refused(tmp_path):
    with pytest.raises(DataError, match="has no train-clean-100 and no"):
        prepare("librispeech", tmp_path, tmp_path / "to")


def test_common_voice_keeps_letters_and_quotes_and_counts_what_cannot_be(tmp_path):
    splits, left_out = prepare("common_voice", miniatures.common_voice(tmp_path), tmp_path / "to")
    row = splits["train"][0]
    assert (row.id, row.text, row.language) == ("common_voice_fr_00", 'Été, «déjà» "là"', "fr")
    assert left_out["train"] == {
        "duplicate id": 1,
        "missing audio file": 1,
        "path outside clips/": 1,
        "empty text": 1,
    }


def test_accented_letters_are_folded_when_asked(tmp_path):
    splits, _ = prepare("common_voice", miniatures.common_voice(tmp_path), tmp_path / "to", letters="fold")
    assert splits["dev"][0].text == 'Ete, «deja» "la"'
    assert normalize_letters("e\N{COMBINING ACUTE ACCENT}", "keep") == "é"


def test_tedlium_is_cut_into_its_segments(tmp_path):
    splits, left_out = prepare("tedlium", miniatures.tedlium(tmp_path), tmp_path / "to")
    rows = list(splits["train"])
    assert [(row.start, row.seconds, row.text) for row in rows] == [
        (0.0, 1.0, "it's a talk"),
        (1.2, 1.7, "and they're done"),
    ]
    assert left_out["dev"] == {"excluded from scoring by the corpus": 1, "invalid segment times": 1}


def test_switchboard_sides_are_channels_of_one_call(tmp_path):
    splits, left_out = prepare("switchboard", miniatures.switchboard(tmp_path), tmp_path / "to", dev_calls=1)
    rows = {row.id: row for split in splits.values() for row in split}
    assert {row.id[:6] for row in splits["dev"]} == {"sw2001"}
    one, other = rows["sw2005A-ms98-a-0002"], rows["sw2005B-ms98-a-0002"]
    assert (one.text, one.channel, other.channel) == ("yeah i th- them know", 0, 1)
    both, _ = soundfile.read(one.audio, dtype="float32")
    sides = read_utterance(one, rate=8000), read_utterance(other, rate=8000)
    for side, samples in enumerate(sides):
        assert (samples == both[3200:9600, side]).all()
    assert left_out["train"] == {"empty transcript": 2}


def test_switchboard_segments_beyond_the_end_are_found_by_the_deep_check(tmp_path):
    with pytest.raises(AssertionError, match="is 2.00 s long; the row asks for 1.20 to 9.00 s"):
        layout = catalog.find(CORPORA, "switchboard")
        check_corpus(layout, miniatures.switchboard(tmp_path), layout.options(dev_calls=1))


@pytest.mark.parametrize(
    ("transcript", "words"),
    [
        (
            "[laughter-yeah] <b_aside> th[is]- [ruddle/riddle] {yuppiedom} them_1 [noise]",
            "yeah th- ruddle yuppiedom them",
        ),
        ("[silence]", ""),
        ("[vocalized-noise] uh-huh [laughter]", "uh-huh"),
    ],
)
def test_switchboard_transcripts_are_words_alone(transcript, words):
    assert clean_transcript(transcript) == words


@pytest.mark.parametrize("raw", [True, False])
def test_an4_in_its_original_layouts(tmp_path, raw):
    splits, left_out = prepare("an4", miniatures.an4(tmp_path, raw), tmp_path / "to")
    assert {name: len(split) for name, split in splits.items()} == {"train": 4, "test": 2}
    row = splits["train"][0]
    assert (row.id, row.text, row.speaker) == ("an1-fash-b", "ONE 1", "fash")
    assert read_utterance(row).shape == (4800,)
    assert left_out["test"] == {"missing audio file": 1, "no id in brackets": 1}


def test_an4_as_ready_manifests(tmp_path):
    miniatures.audio(tmp_path / "a" / "audio" / "x.wav")
    miniatures.text(tmp_path / "a" / "train.jsonl", '{"id": "x", "audio": "audio/x.wav", "text": "YES"}')
    splits, _ = prepare("an4", tmp_path / "a", tmp_path / "to")
    assert splits["train"][0].text == "YES"


def test_speech_commands_by_their_lists(tmp_path):
    splits, _ = prepare("speech_commands", miniatures.speech_commands(tmp_path), tmp_path / "to")
    assert {name: {row.speaker for row in split} for name, split in splits.items()} == {
        "train": {"aa11"},
        "dev": {"bb22"},
        "test": {"cc33"},
    }
    assert {row.labels["word"] for row in splits["train"]} == {"yes", "no", "bed"}


def test_speech_commands_in_twelve_classes_with_silence_that_no_two_splits_share(tmp_path):
    source = miniatures.speech_commands(tmp_path)
    splits, _ = prepare("speech_commands", source, tmp_path / "to", classes="12")
    assert {row.labels["word"] for row in splits["dev"]} == {"yes", "no", "_unknown_", "_silence_"}
    silences = [row.start for split in splits.values() for row in split if row.labels["word"] == "_silence_"]
    assert sorted(silences) == [float(second) for second in range(20)]
    layout = catalog.find(CORPORA, "speech_commands")
    check_corpus(layout, source, layout.options(classes="12"))


def test_voxceleb1_speakers_by_the_identification_split(tmp_path):
    splits, left_out = prepare("voxceleb1", miniatures.voxceleb1(tmp_path), tmp_path / "to")
    assert {name: len(split) for name, split in splits.items()} == {"train": 2, "dev": 2, "test": 2}
    assert splits["dev"][0].id == "id10001/b-b_/00001" and splits["dev"][0].speaker == "id10001"
    assert left_out["train"] == {"missing audio file": 1, "part is not 1, 2 or 3": 1}


def test_voxceleb1_may_be_m4a(tmp_path):
    source = miniatures.voxceleb1(tmp_path)
    (source / "wav").rename(source / "aac")
    for path in list(source.rglob("*.wav")):
        path.rename(path.with_suffix(".m4a"))  # what is in a file decides how it is read
    splits, _ = prepare("voxceleb1", source, tmp_path / "to")
    assert {name: len(split) for name, split in splits.items()} == {"train": 2, "dev": 2, "test": 2}
    assert splits["dev"][0].audio.suffix == ".m4a"


def test_fluent_speech_commands_have_slots_and_an_intent(tmp_path):
    splits, left_out = prepare("fluent_speech_commands", miniatures.fluent(tmp_path), tmp_path / "to")
    row = splits["dev"][0]
    assert row.text == "Turn on, please" and row.labels["intent"] == "activate lights none"
    assert left_out["train"] == {"path outside the corpus": 1}


def test_iemocap_has_four_classes_in_five_sessions(tmp_path):
    splits, left_out = prepare("iemocap", miniatures.iemocap(tmp_path), tmp_path / "to")
    assert list(splits) == [f"session{number}" for number in range(1, 6)]
    assert [row.labels["emotion"] for row in splits["session3"]] == ["neu", "hap", "ang", "sad"]
    assert {row.speaker for row in splits["session3"]} == {"Ses03F", "Ses03M"}
    assert splits["session1"][0].text == "Excuse me."
    assert left_out["session2"] == {"emotion xxx is not one of the four classes": 1}


def test_a_plain_folder_with_texts_beside_the_audio(tmp_path):
    splits, left_out = prepare("folder", miniatures.folder(tmp_path), tmp_path / "to", speaker_from_folder=True)
    rows = {row.id: row for row in splits["train"]}
    assert rows.keys() == {"train/anna/one two", "train/boris/three", "train/boris/пять"}
    row = rows["train/boris/пять"]
    assert row.text == "hello there from boris/пять.flac" and row.speaker == "boris"
    assert left_out["train"] == {"no .txt or .lab file": 1, "text is not UTF-8": 1}


def test_a_folder_of_validation_recordings_is_a_split_of_its_own(tmp_path):
    for split in ("train", "validation"):
        miniatures.text(miniatures.audio(tmp_path / split / "a.wav").with_suffix(".txt"), split)
    splits, _ = prepare("folder", tmp_path, tmp_path / "to")
    assert {split: [row.text for row in rows] for split, rows in splits.items()} == {
        "train": ["train"],
        "validation": ["validation"],
    }


@pytest.mark.parametrize(("corpus", "kind"), [("csv", "csv"), ("nemo", "jsonl")])
def test_the_metadata_of_each_folder_of_an_audio_folder_is_a_split(tmp_path, corpus, kind):
    splits, _ = prepare(corpus, miniatures.audio_folder(tmp_path / "data", kind), tmp_path / "to")
    assert {split: [row.text for row in rows] for split, rows in splits.items()} == {
        "train": ["from train"],
        "validation": ["from validation"],
    }


def test_csv_columns_by_any_name(tmp_path):
    columns = dict(audio="file", text="words", speaker="who", seconds="length", labels=("kind",))
    splits, left_out = prepare("csv", miniatures.csv_files(tmp_path), tmp_path / "to", **columns)
    first, second = splits["a"]
    assert (first.text, first.speaker, first.labels) == ('hello, "you"', "anna", {"kind": "x"})
    assert second.text == "bye" and second.seconds == pytest.approx(0.3)
    assert left_out["a"] == {"no audio": 1, "missing audio file": 1}
    with pytest.raises(DataError, match="has no column 'sentence'"):
        prepare("csv", tmp_path, tmp_path / "other", audio="file", text="sentence")


def test_nemo_manifests_with_offsets(tmp_path):
    splits, left_out = prepare("nemo", miniatures.nemo(tmp_path), tmp_path / "to")
    assert [(row.start, row.seconds, row.text) for row in splits["train_manifest"]] == [
        (0, 0.4, "one"),
        (0.5, 0.5, "two"),
    ]
    assert sum(left_out["train_manifest"].values()) == 3


def test_kaldi_segments_texts_and_sides(tmp_path):
    splits, left_out = prepare("kaldi", miniatures.kaldi(tmp_path), tmp_path / "to")
    one, other = splits["train"]
    assert (one.id, one.text, one.speaker, one.channel) == ("train-u1", "some words 1", "train-anna", 0)
    assert other.channel == 1 and one.seconds == 0.5
    assert sum(left_out["dev"].values()) == 2


def test_a_kaldi_segment_that_ends_at_minus_one_goes_on_to_the_end_of_its_recording(tmp_path):
    source = miniatures.kaldi(tmp_path)
    (source / "dev" / "segments").write_text("dev-u1 dev-A 0.5 -1\ndev-u2 dev-B -2 -1\n")
    splits, left_out = prepare("kaldi", source, tmp_path / "to")
    assert [(each.id, each.start, each.seconds) for each in splits["dev"]] == [("dev-u1", 0.5, 1.5)]
    assert left_out["dev"] == {"invalid segment times": 1}


def test_a_kaldi_pipe_is_refused_and_not_run(tmp_path):
    with pytest.raises(DataError, match="is a command, not a file: sph2pipe"):
        prepare("kaldi", miniatures.kaldi(tmp_path, command=True), tmp_path / "to")


def test_lhotse_cuts_over_plain_recordings(tmp_path):
    splits, left_out = prepare("lhotse", miniatures.lhotse(tmp_path), tmp_path / "to")
    whole, part = splits["cuts_train"]
    assert (whole.text, whole.start, whole.speaker) == ("first second", None, "train-s")
    assert (part.start, part.seconds) == (0.5, 0.5)
    assert left_out["cuts_train"] == {
        "a MixedCut; only MonoCut has one recording": 1,
        "recording is not one plain file: command": 1,
    }


def test_shards_are_indexed_by_the_bytes_of_their_recordings(tmp_path):
    for number in range(3):
        miniatures.shard(tmp_path / f"{number:03d}.tar", [f"d/{number}-{each}" for each in range(4)])
    splits, left_out = prepare("shards", tmp_path / "{000..002}.tar", tmp_path / "to")
    rows = list(splits["train"])
    assert len(rows) == 12 and left_out["train"] == {}
    assert rows[5].text == "text of d/1-1" and rows[5].labels == {"kind": "x"}
    shard = rows[5].audio.read_bytes()
    assert content_of(rows[5]) == shard[rows[5].first_byte :][: rows[5].byte_count]
    check_corpus(catalog.find(CORPORA, "shards"), tmp_path)


def test_an_interrupted_index_of_shards_does_not_read_the_finished_ones_again(tmp_path):
    for number in range(12):
        miniatures.shard(tmp_path / f"from/{number:03d}.tar", [f"{number}-{each}" for each in range(2)])
    last = tmp_path / "from/011.tar"
    whole = last.read_bytes()
    last.write_bytes(whole[:600])
    with pytest.raises(DataError, match="is truncated"):
        prepare("shards", tmp_path / "from", tmp_path / "to")
    assert not (tmp_path / "to/train.jsonl").exists()
    last.write_bytes(whole)
    assert len(list((tmp_path / "to/.train.shards").glob("*.jsonl"))) >= 8
    splits, _ = prepare("shards", tmp_path / "from", tmp_path / "to")
    assert [row.id for row in splits["train"]] == [f"{number}-{each}" for number in range(12) for each in range(2)]
    assert not (tmp_path / "to/.train.shards").exists()


def test_a_shard_that_is_cut_off_or_damaged_is_refused(tmp_path):
    path = miniatures.shard(tmp_path / "a.tar", ["1", "2", "3"])
    whole = path.read_bytes()
    second = open_manifest(_indexed(path, tmp_path / "whole"), tmp_path / "index")[1]
    path.write_bytes(whole[: second.first_byte + 100])
    with pytest.raises(DataError, match=r"a\.tar is truncated in the member '2\.flac'"):
        prepare("shards", path, tmp_path / "cut")
    path.write_bytes(whole[: second.first_byte - 512] + b"\xff" * 512 + whole[second.first_byte :])
    with pytest.raises(DataError, match=r"a\.tar is damaged at byte"):
        prepare("shards", path, tmp_path / "damaged")


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("lhotse", "cuts_train.jsonl.gz", gzip.compress(b"{}" * 1000, mtime=0)[:20] + bytes(20)),
        ("lhotse", "cuts_train.jsonl", b"[" * 100_000),
        ("lhotse", "cuts_train.jsonl", b'5\n{"recording": 5}\n{"recording": {"sources": [{"type": "file"}]}}\n'),
        ("voxceleb1", "iden_split.txt", b"1 loose.wav\n"),
        ("librispeech", "LibriSpeech/dev-clean/101/7/101-7.trans.txt", b"101-7-0000\0 A\n101-7-0001 B\n"),
        ("sbcsae", "train.tsv", b"path\tsentence\n\tnothing\n"),
    ],
)
def test_a_list_that_is_damaged_is_a_message_or_a_reason_to_skip_a_row(name, file, content, tmp_path, capsys):
    root = tmp_path / "from"
    {**MINIATURES, "voxceleb1": miniatures.voxceleb1, "sbcsae": sbcsae}[name](root)
    (root / file).write_bytes(content)
    code = main(["prepare", name, "--from", str(root), "--to", str(tmp_path / "to")])
    shown = capsys.readouterr()
    assert code in (0, 2) and (shown.err if code else shown.out)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("layout", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_shard_with_a_negative_size_is_refused_instead_of_read_for_ever(tmp_path, layout):
    header = tarfile.TarInfo("1.flac")
    header.size = -512
    content = tarfile.TarInfo("0.flac").tobuf() + header.tobuf(layout) + bytes(10240)
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.tar is not an uncompressed tar file, or is damaged: .*-512 bytes"):
        prepare("shards", tmp_path / "a.tar", tmp_path / "to")


def sbcsae(root):
    for split in ("train", "dev", "test"):
        miniatures.audio(root / f"wav/{split}.wav")
        miniatures.text(root / f"{split}.tsv", "path\tsentence", f"{split}.wav\tone")


def _indexed(path, to):
    prepare("shards", path, to)
    return to / "train.jsonl"


def arrow_table(count=6):
    import pyarrow

    audio = [{"bytes": miniatures.encoded(), "path": f"{number}.flac"} for number in range(count - 1)]
    audio.append({"bytes": None, "path": None})
    return pyarrow.table(
        {"audio": audio, "transcription": [f"text {number}" for number in range(count)], "up": [1] * count}
    )


@pytest.mark.parametrize("copy", [False, True])
def test_parquet_rows_are_read_by_their_row_group_or_copied(tmp_path, copy):
    import pyarrow.parquet

    table = arrow_table()
    (tmp_path / "data").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "data" / "train-00000-of-00001.parquet", row_group_size=2)
    splits, left_out = prepare("huggingface", tmp_path, tmp_path / "to", copy=copy)
    rows = list(splits["train"])
    assert [row.text for row in rows] == [f"text {number}" for number in range(5)]
    assert left_out["train"] == {"no audio": 1}
    for number in (4, 0, 3):  # in any order
        content = content_of(rows[number]) or Path(rows[number].audio).read_bytes()
        assert content == table["audio"][number].as_py()["bytes"]
    assert (rows[0].row is None) == copy
    layout = catalog.find(CORPORA, "huggingface")
    check_corpus(layout, tmp_path, layout.options(copy=copy))


def test_what_save_to_disk_wrote_is_read_by_the_bytes_in_its_arrow_files(tmp_path):
    datasets = pytest.importorskip("datasets")
    contents = [miniatures.encoded() for _ in range(5)]
    rows = {"audio": [{"bytes": each, "path": None} for each in contents], "sentence": list("abcde")}
    saved = datasets.DatasetDict(
        {"train": datasets.Dataset.from_dict(rows).cast_column("audio", datasets.Audio(decode=False))}
    )
    saved.save_to_disk(str(tmp_path / "saved"))
    splits, _ = prepare("huggingface", tmp_path / "saved", tmp_path / "to")
    assert [content_of(row) for row in splits["train"]] == contents
    assert [row.text for row in splits["train"]] == list("abcde")


def test_the_verb_prepares_keeps_what_is_finished_and_refuses_another_source(tmp_path, capsys):
    source = miniatures.librispeech(tmp_path / "from")
    words = ["prepare", "librispeech", "--from", str(source), "--to", str(tmp_path / "to"), "--jobs", "2"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "train-clean-100.jsonl: 3 utterances, 0.0 min" in out and "skipped 1: missing audio file" in out
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "to").glob("*.jsonl")}
    assert main([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [split["was_there"] for split in again] == [True] * 3 and again[0]["rows"] == 3
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "to").glob("*.jsonl")}
    other = ["prepare", "folder", "--from", str(source), "--to", str(tmp_path / "to")]
    assert main(other) == 2
    assert "is already prepared with other settings" in capsys.readouterr().err


def test_several_processes_that_prepare_at_once_do_it_once(tmp_path):
    source, to = miniatures.librispeech(tmp_path / "from"), tmp_path / "to"
    words = ["prepare", "librispeech", "--from", str(source), "--to", str(to), "--jobs", "1"]
    began = [start(words)[0] for _ in range(4)]
    assert wait(began) == [0] * 4
    assert len((to / "dev-clean.jsonl").read_text().splitlines()) == 3
    assert not list(to.glob(".*.part")) and not list(to.glob(".*.measured.jsonl"))


def test_a_preparation_that_is_killed_leaves_no_manifest_and_the_next_one_makes_it(tmp_path):
    source, to = miniatures.librispeech(tmp_path / "from", ("train-clean-5",)), tmp_path / "to"
    words = ["prepare", "mini_librispeech", "--from", str(source), "--to", str(to), "--jobs", "1"]
    whole = 0
    for moment in range(1, 40):
        point = KillPoints(moment)
        (code,) = wait(start(words, 1, lambda _, point=point: point.watch()))
        manifest = to / "train-clean-5.jsonl"
        if manifest.exists():
            assert len(manifest.read_text().splitlines()) == 3
            assert json.loads((to / "train-clean-5.prepared.json").read_text())["rows"] == 3
        whole = whole + 1 if code == 0 else 0
        if whole:
            break
    assert whole and moment > 5


def test_an_unknown_option_or_corpus_is_answered_with_the_nearest(tmp_path, capsys):
    miniatures.common_voice(tmp_path)
    words = ["--from", str(tmp_path), "--to", str(tmp_path / "to")]
    assert main(["prepare", "common_voice", "leters=fold", *words]) == 2
    assert "did you mean 'letters'?" in capsys.readouterr().err
    assert main(["prepare", "librispech", *words]) == 2
    assert "did you mean 'librispeech'?" in capsys.readouterr().err


def test_an_interrupted_preparation_goes_on_from_what_it_had_measured(tmp_path):
    source, to = miniatures.librispeech(tmp_path / "from", ("train-clean-5", "dev-clean-2")), tmp_path / "to"
    layout = catalog.find(CORPORA, "mini_librispeech")
    found = list(layout.read(CorpusPaths(str(source), to), layout.options())["dev-clean-2"])

    def cut_off():
        yield from found[:2]
        raise KeyboardInterrupt

    to.mkdir()
    with pytest.raises(KeyboardInterrupt):
        list(prepare_split("dev", cut_off(), to, jobs=1))
    assert not (to / "dev.jsonl").exists()
    (to / ".dev.measured.jsonl").write_text(
        "".join(json.dumps({"key": key, "result": 9.5}) + "\n" for key in _keys(found[:1], to)) + '{"cut'
    )
    list(prepare_split("dev", iter(found), to, jobs=1))
    seconds = [json.loads(line)["seconds"] for line in (to / "dev.jsonl").read_text().splitlines()]
    assert seconds == [9.5, 0.3, 0.3]  # the first from the journal, the others measured
    assert not (to / ".dev.measured.jsonl").exists()


def test_what_is_mended_after_an_interruption_is_read_again(tmp_path):
    broken, to = tmp_path / "broken.wav", tmp_path / "to"
    broken.write_bytes(b"cut")
    sound = miniatures.audio(tmp_path / "sound.wav")
    rows = [Row("0", str(broken)), *(Row(str(number), str(sound)) for number in range(1, 70))]

    def cut_off():
        yield from rows[:64]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(prepare_split("train", cut_off(), to, jobs=1))
    assert (to / ".train.measured.jsonl").read_text().count("\n") == 64
    miniatures.audio(broken)
    list(prepare_split("train", iter(rows), to, jobs=1))
    assert len((to / "train.jsonl").read_text().splitlines()) == 70


def test_a_shard_that_is_replaced_after_an_interruption_is_read_again(tmp_path):
    for number in range(12):
        miniatures.shard(tmp_path / f"from/{number:03d}.tar", [f"{number}-a"])
    last = tmp_path / "from/011.tar"
    whole = last.read_bytes()
    last.write_bytes(whole[:600])
    with pytest.raises(DataError, match="is truncated"):
        prepare("shards", tmp_path / "from", tmp_path / "to")
    last.write_bytes(whole)
    miniatures.shard(tmp_path / "from/000.tar", ["another-1", "another-2"])
    splits, _ = prepare("shards", tmp_path / "from", tmp_path / "to")
    assert [row.id for row in splits["train"]][:3] == ["another-1", "another-2", "1-a"]


def _keys(found, to):
    from attune.corpora._prepare import _key

    return [_key(item, to) for item in found]


def test_plug_ins_that_import_the_former_names_keep_working(tmp_path):
    from attune.corpora import CorpusPaths, Found, Layout, NoOptions, Place, Row

    def read(place: Place, options: NoOptions) -> dict[str, list[Found]]:
        return {"train": [Row("a", str(place.folder / "a.wav"))]}

    rows = Layout(read).read(CorpusPaths(str(tmp_path), tmp_path), NoOptions())
    assert rows["train"] == [Row("a", str(tmp_path / "a.wav"))]


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("¿Qué tal, señor?", "QUÉ TAL SEÑOR"),
        ("it's well-known …", "IT'S WELL KNOWN"),
        ("D’Artagnan | 5 + 2 = ~7 × 1", "D'ARTAGNAN 5 2 7 1"),
        ("ﬁn １２", "FIN 12"),
    ],
)
def test_text_of_superb_is_upper_case_without_punctuation(sentence, text):
    assert superb_text(sentence) == text


def test_common_voice_by_accent_and_without_latin_rows(tmp_path):
    (tmp_path / "cv" / "clips").mkdir(parents=True)
    lines = ["client_id\tpath\tsentence\taccents\tlocale"]
    rows = [
        ("Sí.", "mexicano", "es"),
        ("No.", "andino", "es"),
        ("ok 好", "mexicano", "zh-CN"),
        ("好，好。", "mexicano", "zh-CN"),
        ("И好", "mexicano", "zh-CN"),
        ("…", "mexicano", "es"),
    ]
    for number, (sentence, accent, locale) in enumerate(rows):
        soundfile.write(tmp_path / "cv" / "clips" / f"{number}.wav", np.zeros(1600), 16_000)
        lines.append(f"c{number}\t{number}.wav\t{sentence}\t{accent}\t{locale}")
    (tmp_path / "cv" / "test.tsv").write_text("\n".join(lines) + "\n")
    options = {"splits": ("test",), "accent": "mexicano", "text": "superb"}
    splits, left_out = prepare("common_voice", tmp_path / "cv", tmp_path / "to", **options)
    assert [row.text for row in splits["test"]] == ["SÍ", "好好"]
    assert left_out["test"] == {"Latin letters": 1, "foreign letters": 1, "no words": 1}
