"""Tables as people have them: any delimiter, headers of their own, a split column, or one file to be cut."""

import pytest

from attune.cli import main
from attune.corpora import CorpusPaths, Skipped
from attune.corpora import csv as csv_files
from attune.corpora._ratios import assign_groups
from attune.corpora._tables import sniff_delimiter
from attune.errors import DataError

import miniatures


def splits(path, **options):
    found = csv_files.read(CorpusPaths(str(path), path.parent / "to"), csv_files.Options(**options))
    return {name: list(rows) for name, rows in found.items()}


def table(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "header", "row", "delimiter"),
    [
        ("a.csv", "file;text", "a.wav;well, well, well", ";"),
        ("a.csv", "file\ttext", "a.wav\tone; two, three", "\t"),
        ("a.csv", "file|text", "a.wav|x", "|"),
        ("a.csv", "file,text", "a.wav,one; two; three", ","),
        ("a.csv", "file;text (raw, unchecked)", "a.wav;one", ";"),
        ("a.tsv", "file\ttext", 'a.wav\t"so', "\t"),
        ("a.tsv", "file,text", "a.wav,x", ","),
        ("a.csv", "file", "a.wav", ","),
    ],
)
def test_the_delimiter_is_the_one_that_cuts_the_header_and_the_rows_alike(tmp_path, name, header, row, delimiter):
    assert sniff_delimiter(table(tmp_path / name, header, row, row)) == delimiter


def test_headers_of_their_own_are_recognized_and_the_rest_are_labels(tmp_path):
    path = table(tmp_path / "m.csv", "Filename;Transcription;Speaker ID;Lang;Digit", "a.wav;hi, you;s1;de;7")
    (row,) = splits(path)["m"]
    assert (row.audio, row.text, row.speaker, row.language) == (str(tmp_path / "a.wav"), "hi, you", "s1", "de")
    assert row.labels == {"Digit": "7"}
    assert list(csv_files.notes(CorpusPaths(str(path), tmp_path), csv_files.Options())) == [
        "m.csv: audio = Filename, text = Transcription, speaker = Speaker ID, language = Lang, labels = Digit; "
        "delimiter ';'"
    ]


def test_the_audio_column_is_found_by_its_cells_and_a_named_column_has_the_last_word(tmp_path):
    path = table(tmp_path / "m.csv", "Datei,Satz,text", "a.mp3,eins,eins!")
    (row,) = splits(path, text="Satz")["m"]
    assert row.audio.endswith("a.mp3") and row.text == "eins" and row.labels == {"text": "eins!"}
    with pytest.raises(DataError, match=r"cannot tell which column has the audio\. Add audio=COLUMN, one of: a, b"):
        splits(table(tmp_path / "n.csv", "a,b", "1,2"))


def test_spaces_around_a_cell_belong_to_its_text_alone(tmp_path):
    miniatures.audio(tmp_path / "clips" / "a.wav")
    path = table(
        tmp_path / "m.csv", "file, words, speaker, mood", "a.wav , hi  you, anna , calm ", "b.wav, oh, anna,calm"
    )
    first, second = splits(path)["m"]
    assert (first.id, first.audio, first.text) == ("a", str(tmp_path / "clips" / "a.wav"), " hi  you")
    assert first.speaker == second.speaker == "anna" and first.labels == second.labels == {"mood": "calm"}


def test_segments_are_cut_by_start_and_end(tmp_path):
    path = table(tmp_path / "m.csv", "path,start,end,text", "call.wav,1.5,2.75,hi", "call.wav,3,2,no")
    first, second = splits(path)["m"]
    assert (first.id, first.start, first.seconds) == ("call@1.5", 1.5, 1.25)
    assert isinstance(second, Skipped) and second.reason == "invalid segment times"


def test_a_duration_is_measured_unless_it_is_asked_for(tmp_path):
    path = table(tmp_path / "m.csv", "path,duration,text", "call.wav,99,hi")
    assert splits(path)["m"][0].seconds is None and not splits(path)["m"][0].labels
    assert splits(path, seconds="duration")["m"][0].seconds == 99


def test_paths_may_lack_their_folder_and_their_suffix(tmp_path):
    (tmp_path / "wavs").mkdir()
    (tmp_path / "wavs/LJ-1.wav").touch()
    (row,) = splits(table(tmp_path / "metadata.csv", "file|text", "LJ-1|in being"))["metadata"]
    assert row.audio == str(tmp_path / "wavs/LJ-1.wav")


def test_a_table_knows_at_once_about_how_many_rows_it_has(tmp_path):
    path = table(tmp_path / "own.csv", "path,text", *(f"{number}.wav,hello" for number in range(7)))
    assert csv_files.CORPUS.count(CorpusPaths(str(path), tmp_path / "to"), csv_files.Options()) == 7


def test_a_split_column_makes_the_splits(tmp_path):
    rows = ("a.wav,a,train", "b.wav,b,Validation", "c.wav,c,testing", "d.wav,d,train")
    found = splits(table(tmp_path / "m.csv", "path,text,split", *rows))
    assert {name: [row.id for row in rows] for name, rows in found.items()} == {
        "train": ["a", "d"],
        "dev": ["b"],
        "test": ["c"],
    }


def test_one_file_is_cut_by_speaker_without_leakage(tmp_path):
    rows = [f"r{number}.wav,text,s{number % 20}" for number in range(200)]
    path = table(tmp_path / "m.csv", "path,text,speaker", *rows)
    found = splits(path, dev=0.1, test=0.2)
    assert {name: len(rows) for name, rows in found.items()} == {"train": 140, "test": 40, "dev": 20}
    speakers = [{row.speaker for row in rows} for rows in found.values()]
    assert sum(map(len, speakers)) == 20 == len(set.union(*speakers))
    assert found == splits(path, dev=0.1, test=0.2)


def test_too_few_speakers_are_told_and_recordings_can_be_cut_instead(tmp_path):
    path = table(tmp_path / "m.csv", "path,text,who", *(f"r{each}.wav,text,anna" for each in range(10)))
    with pytest.raises(DataError, match="1 speakers or recordings cannot be cut into 2 splits.*split_by=recording"):
        splits(path, dev=0.2, speaker="who")
    assert len(splits(path, dev=0.2, speaker="who", split_by="recording")["dev"]) == 2
    with pytest.raises(DataError, match="No row has a speaker to split by"):
        splits(path, dev=0.2, split_by="speaker")


def test_a_record_without_a_split_or_with_too_many_cells_is_reported_once(tmp_path):
    path = table(
        tmp_path / "m.csv", "file;text;split", "a.wav;one;train", "b.wav;two;", "c.wav;x;y;test", "d.wav;z;test"
    )
    found = splits(path)
    assert [row.id for rows in found.values() for row in rows if not isinstance(row, Skipped)] == ["a", "d"]
    skipped = [row for rows in found.values() for row in rows if isinstance(row, Skipped)]
    assert len(skipped) == 2 and Skipped("m.csv:3", "no split") in skipped


def test_every_split_gets_a_group_even_if_one_is_large():
    owners = assign_groups({"a": 90, "b": 5, "c": 5}, {"test": 0.5, "dev": 0.1})
    assert sorted(owners.values()) == ["dev", "test", "train"]


@pytest.mark.parametrize("most", "abc")
def test_a_speaker_with_most_of_the_rows_is_trained_on(most):
    counts = {name: 900 if name == most else 50 for name in "abc"}
    owners = assign_groups(counts, {"dev": 0.1, "test": 0.1})
    assert owners[most] == "train" and sorted(owners.values()) == ["dev", "test", "train"]


def test_prepare_shows_the_columns_and_the_path_of_what_is_missing(tmp_path, capsys):
    (tmp_path / "a.flac").write_bytes(miniatures.encoded())
    path = table(tmp_path / "m.csv", "Datei;Text;Ziffer", "a.flac;eins;1", "gone.flac;zwei;2")
    command = ["prepare", "csv", "--from", str(path), "--to", str(tmp_path / "to"), "labels=Ziffer", "--jobs", "1"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert f"gone (tried {tmp_path / 'gone.flac'}): missing audio file" in out
    assert "m.csv: audio = Datei, text = Text, labels = Ziffer; delimiter ';'" in err


def test_the_help_of_prepare_lists_the_options_of_the_corpus(capsys):
    with pytest.raises(SystemExit):
        main(["prepare", "csv", "--help"])
    out = capsys.readouterr().out
    assert "options of csv (key=value):" in out and "The column of the audio file." in out


def test_a_text_column_of_any_name_is_found_by_its_cells(tmp_path):
    rows = ("a.mp3;guten morgen allerseits;hh;ja", "b.mp3;bis morgen dann;hb;ja", "c.mp3;danke;hh;nein, nie")
    (found,) = splits(table(tmp_path / "m.csv", "Nr;Wortlaut;Ort;Sauber", *rows)).values()
    assert [row.text for row in found] == ["guten morgen allerseits", "bis morgen dann", "danke"]
    assert found[2].labels == {"Ort": "hh", "Sauber": "nein, nie"}
    twice = table(tmp_path / "n.csv", "Nr;Wortlaut;Notiz", "a.mp3;guten morgen;sehr leise", "b.mp3;bis dann;zu laut")
    assert splits(twice)["n"][0].text is None  # two columns may be the text: the user is asked
    assert splits(twice, labels=("Notiz",))["n"][0].text == "guten morgen"


@pytest.mark.parametrize("header", ["Dateiname;Transkript;Sprecher;Dauer", "Fichier;Phrase;Locuteur;Durée"])
def test_headers_of_other_languages_are_known(tmp_path, header):
    (row,) = splits(table(tmp_path / "m.csv", header, "a.wav;x;s1;2"))["m"]
    assert (row.text, row.speaker, row.labels) == ("x", "s1", {})
