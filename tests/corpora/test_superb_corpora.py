"""The corpora of SUPERB, each on a miniature of its real layout."""

import numpy as np
import pytest
import soundfile

from attune import catalog
from attune.corpora import CORPORA, CorpusPaths
from attune.corpora.speech_commands import _part
from attune.errors import DataError
from attune.testing import check_corpus

import miniatures
from miniatures import audio, prepare, text


def quesst14(root):
    base = root / "quesst14Database"
    for name in ("Audio/doc_1", "Audio/doc_2", "Audio/czech", "dev_queries/q_1", "dev_queries/q_2", "eval_queries/e_1"):
        audio(base / f"{name}.wav", rate=8000)
    scoring = base / "scoring"
    packed = "quesst14Database/Audio"
    text(
        scoring / "language_key_utterances.lst",
        f"{packed}/doc_1.wav nnenglish",
        f"{packed}/doc_2.wav nnenglish",
        f"{packed}/czech.wav czech",
    )
    queries = [f"quesst14Database/dev_queries/q_{number}.wav nnenglish" for number in (1, 2)]
    text(scoring / "language_key_dev.lst", *queries, "quesst14Database/../../secret.wav nnenglish")
    text(scoring / "language_key_eval.lst", "quesst14Database/eval_queries/e_1.wav nnenglish")
    for split, query in (("dev", "q_1"), ("eval", "e_1")):
        lines = [f"LEXEME {name} 1 0.00 0.30 {query} lex unknown 0.5" for name in ("doc_2", "doc_1")]
        text(scoring / f"groundtruth_quesst14_{split}" / "quesst14.rttm", "SPKR-INFO doc_1 1 <NA>", *lines)
    return root


def snips(root):
    lines = []
    for folder, voice in (("train", "Ivy"), ("valid", "Amy"), ("test", "Emma")):
        for number in range(2):
            name = f"{voice}-snips-{folder}-{number}"
            audio(root / "SNIPS" / folder / f"{name}.wav")
            lines.append(f"{name} BOS ADD QUEEN SOUL & BLUES , NOW EOS\tO O artist list list list O O AddToPlaylist")
    audio(root / "SNIPS" / "train" / "Brian-snips-train-0.wav")
    audio(root / "SNIPS" / "train" / "Joey-snips-train-0.wav")
    text(root / "SNIPS" / "all.iob.snips.txt", *lines)
    return root


def voicebank(root):
    for folder, names in (
        ("trainset_28spk", ("p226_001", "p230_001", "p231_001", "p287_001")),
        ("testset", ("p232_001",)),
    ):
        for name in names:
            audio(root / f"noisy_{folder}_wav_16k" / f"{name}.wav")
            if name != "p231_001":
                audio(root / f"clean_{folder}_wav_16k" / f"{name}.wav")
            text(root / f"{folder}_txt" / f"{name}.txt", "Please call Stella.")
    return root


def libri2mix(root, mode="min"):
    for number, folder in enumerate(("train-100", "dev", "test")):
        name = f"{number}1-7-0001_{number}2-8-0002"
        for kind in ("mix_clean", "s1", "s2"):
            audio(root / "Libri2Mix" / "wav16k" / mode / folder / kind / f"{name}.wav")
        audio(root / "Libri2Mix" / "wav16k" / mode / folder / "mix_clean" / f"{number}3-7-0003_{number}4-8-0004.wav")
        text(
            root / "rttm" / folder.removesuffix("-100") / "rttm",
            f"SPEAKER {name} 1 0.10 0.20 <NA> <NA> {number}2 <NA>",
            f"SPEAKER {name} 1 0.00 0.25 <NA> <NA> {number}1 <NA>",
        )
    return root


def covost2(root):
    for number, split in enumerate(("train", "dev", "test")):
        audio(root / "clips" / f"en_{number}.mp3", rate=32000, format="MP3")
        text(
            root / f"covost_v2.en_de.{split}.tsv",
            "path\tsentence\ttranslation\tclient_id",
            f'en_{number}.mp3\tHe said "yes".\tEr sagte „ja“.\tvoice{number}',
            f"gone_{number}.mp3\tx\tREMOVE\tvoice{number}",
            f"../x.mp3\tx\ty\tvoice{number}",
        )
    return root


def sbcsae(root):
    for split in ("train", "dev", "test"):
        audio(root / "wav" / f"SBC_{split}_0001.wav")
        text(root / f"{split}.tsv", "path\tsentence", f"SBC_{split}_0001.wav\tWELL YOU KNOW", "../x.wav\tNO")
    return root


def vcc2020(root):
    for speaker in ("TEF1", "SEF1", "SEF2", "SEM1", "SEM2"):
        for name in ("E10001", "E10061", "E20001", "E30001"):
            audio(root / speaker / f"{name}.wav", rate=24000)
    text(root / "prompts" / "Eng_transcriptions.txt", "E10001 One sentence.", "E30001 Another.")
    return root


MADE = {
    "quesst14": quesst14,
    "snips": snips,
    "voicebank_demand": voicebank,
    "libri2mix": libri2mix,
    "covost2": covost2,
    "sbcsae": sbcsae,
    "vcc2020": vcc2020,
}


@pytest.mark.parametrize("name", MADE)
def test_a_corpus_of_superb_keeps_its_promises(name, tmp_path):
    check_corpus(catalog.find(CORPORA, name), MADE[name](tmp_path))


def test_quesst14_has_queries_documents_and_which_is_in_which(tmp_path):
    splits, _ = prepare("quesst14", quesst14(tmp_path), tmp_path / "to")
    rows = {row.id: row for name in ("dev", "documents") for row in splits[name]}
    assert rows.keys() == {"q_1", "q_2", "doc_1", "doc_2"}  # English alone, and nothing outside the corpus
    assert rows["q_1"].labels == {"role": "query"} and rows["doc_1"].labels == {"role": "document"}
    assert (tmp_path / "to" / "dev-matches.txt").read_text() == "q_1 doc_1\nq_1 doc_2\n"
    every, _ = prepare("quesst14", tmp_path, tmp_path / "all", language="all")
    assert "czech" in {row.id for row in every["documents"]}


def test_snips_has_a_tag_for_each_word_and_the_voices_of_its_split(tmp_path):
    splits, left_out = prepare("snips", snips(tmp_path), tmp_path / "to")
    row = splits["train"][0]
    assert (row.text, row.labels["slots"]) == ("ADD QUEEN SOUL AND BLUES NOW", "O B-artist B-list I-list I-list O")
    assert row.labels["intent"] == "AddToPlaylist" and row.speaker == "Ivy"
    assert left_out["train"] == {"voice of another split": 1, "not in all.iob.snips.txt": 1}


def test_voicebank_has_clean_speech_beside_and_two_speakers_for_dev(tmp_path):
    splits, left_out = prepare("voicebank_demand", voicebank(tmp_path), tmp_path / "to")
    assert {name: [row.speaker for row in split] for name, split in splits.items()} == {
        "train": ["p230"],
        "dev": ["p226", "p287"],
        "test": ["p232"],
    }
    assert splits["test"][0].signals["clean"].parent.name == "clean_testset_wav_16k"
    assert splits["test"][0].text == "Please call Stella." and left_out["train"] == {"missing clean recording": 1}


def test_libri2mix_has_sources_and_with_rttm_files_who_speaks_when(tmp_path):
    splits, left_out = prepare("libri2mix", libri2mix(tmp_path), tmp_path / "to")
    assert splits["dev"][0].signals.keys() == {"s1", "s2"} and not splits["dev"][0].segments
    assert left_out["train"] == {"missing source": 1} and splits["dev"][0].labels["speakers"] == "11 12"
    splits, _ = prepare("libri2mix", tmp_path, tmp_path / "sd", diarization=str(tmp_path / "rttm"))
    segments = [(each.start, each.end, each.speaker) for each in splits["test"][0].segments]
    assert segments == [(0.0, 0.25, "21"), (0.1, 0.3, "22")]
    with pytest.raises(DataError, match="Choose another `mixture` or `mode`"):
        prepare("libri2mix", tmp_path, tmp_path / "no", mixture="mix_both")


def test_covost2_has_the_translation_as_a_label(tmp_path):
    splits, left_out = prepare("covost2", covost2(tmp_path), tmp_path / "to")
    row = splits["dev"][0]
    assert (row.text, row.language, row.labels["translation"]) == ('He said "yes".', "en", "Er sagte „ja“.")
    assert left_out["dev"] == {"rejected by the translators": 1, "path outside clips/": 1}


def test_vcc2020_tests_sources_beside_what_the_target_would_say(tmp_path):
    splits, _ = prepare("vcc2020", vcc2020(tmp_path), tmp_path / "to")
    assert [row.id for row in splits["train"]] == ["TEF1/E10001", "TEF1/E20001"]
    assert [row.id for row in splits["dev"]] == ["TEF1/E10061"]
    assert splits["dev"][0].signals["target"] == splits["dev"][0].audio and not splits["train"][0].signals
    assert {row.speaker for row in splits["test"]} == {"SEF1", "SEF2", "SEM1", "SEM2"}
    assert splits["test"][0].signals["target"].name == "E30001.wav" and splits["test"][0].text == "Another."


def test_vcc2020_is_read_from_its_archives_as_they_unpack(tmp_path):
    names = {
        "source/SEF1": ("E10001", "E10061"),
        "target_task1/TEF1": ("E10051", "E10061", "E20001"),
        "vcc2020_database_evaluation/SEF1": ("E30001",),
        "vcc2020_database_groundtruth/TEF1": ("E30001",),
    }
    for folder, own in names.items():
        for name in own:
            audio(tmp_path / "vcc" / folder / f"{name}.wav", rate=24000)
    transcriptions = tmp_path / "vcc" / "vcc2020_database_transcriptions"
    training = "transcriptions_training/vcc2020_database_training_{}_transcriptions.txt"
    text(transcriptions / training.format("Eng"), "E20001 One sentence.")
    text(transcriptions / training.format("Ger"), "G10001 Ein Satz.")
    text(transcriptions / "transcriptions_evaluation/vcc2020_database_evaluation_transcriptions.txt", "E30001 Another.")
    splits, _ = prepare("vcc2020", tmp_path / "vcc", tmp_path / "to")
    assert [(row.id, row.text) for row in splits["train"]] == [("TEF1/E10051", None), ("TEF1/E20001", "One sentence.")]
    (row,) = splits["test"]
    assert (row.id, row.text) == ("SEF1/E30001", "Another.")
    assert row.signals["target"].parent.parent.name == "vcc2020_database_groundtruth"
    with pytest.raises(DataError, match="no ./TEM1 and no source/TEM1 and no target_task1/TEM1"):
        prepare("vcc2020", tmp_path / "vcc", tmp_path / "no", target="TEM1")


def voxceleb(root):
    for speaker in range(8):
        for number in range(3):
            audio(root / "wav" / f"id{speaker}" / "video" / f"{number}.wav", 0.1)
    text(root / "veri_test.txt", "1 id0/video/0.wav id0/video/1.wav", "0 id0/video/0.wav id1/video/2.wav")
    return root


def test_voxceleb1_verification_holds_speakers_back_and_writes_trials(tmp_path):
    options = dict(task="verification", dev_speakers=2)
    splits, _ = prepare("voxceleb1", voxceleb(tmp_path), tmp_path / "to", **options)
    speakers = {name: {row.speaker for row in split} for name, split in splits.items()}
    assert speakers["test"] == {"id0", "id1"} and len(speakers["dev"]) == 2 and len(speakers["train"]) == 4
    assert not speakers["dev"] & speakers["train"] and not speakers["test"] & (speakers["dev"] | speakers["train"])
    trials = (tmp_path / "to" / "dev.trials.txt").read_text().split("\n")[:-1]
    ids = {row.id for row in splits["dev"]}
    assert len(trials) == 8 and all({first, second} <= ids for _, first, second in map(str.split, trials))
    for kind, first, second in map(str.split, trials):
        assert (kind == "1") == (first.split("/")[0] == second.split("/")[0]) and first != second
    assert (tmp_path / "to" / "test.trials.txt").read_text() == (
        "1 id0/video/0 id0/video/1\n0 id0/video/0 id1/video/2\n"
    )
    layout = catalog.find(CORPORA, "voxceleb1")
    check_corpus(layout, tmp_path, layout.options(**options))


def test_voxceleb1_without_silence(tmp_path):
    root = voxceleb(tmp_path)
    loud, quiet = 0.1 * np.random.default_rng(0).standard_normal(16000), np.zeros(8000)
    soundfile.write(root / "wav" / "id0" / "video" / "0.wav", np.concatenate([quiet, loud, quiet, loud]), 16000)
    soundfile.write(root / "wav" / "id0" / "video" / "1.wav", quiet, 16000)
    options = dict(task="verification", dev_speakers=2, trim_silence=True)
    rows = {row.id: row for row in prepare("voxceleb1", root, tmp_path / "to", **options)[0]["test"]}
    assert rows["id0/video/0"].audio == tmp_path / "to" / "audio" / "id0" / "video" / "0.flac"
    assert 2.0 < soundfile.info(rows["id0/video/0"].audio).duration < 2.1
    assert rows["id0/video/1"].audio == root / "wav" / "id0" / "video" / "1.wav"  # nothing would be left


def test_speech_commands_by_the_rule_of_superb(tmp_path):
    root = miniatures.speech_commands(tmp_path / "all")
    names = [f"{number:04x}_nohash_0.wav" for number in range(60)]
    for name in names:
        audio(root / "yes" / name, 0.1)
    audio(tmp_path / "test" / "no" / "dd44_nohash_0.wav", 0.1)
    with pytest.raises(DataError, match="separate archive"):
        prepare("speech_commands", root, tmp_path / "to", split="superb")
    options = dict(split="superb", test=str(tmp_path / "test"), classes="12")
    splits, _ = prepare("speech_commands", root, tmp_path / "to", **options)
    parts = [_part(root / "yes" / name) for name in names]
    assert 30 < parts.count("train") < 58 and parts.count("dev") > 1 and parts.count(None) > 1
    in_dev = {row.id for row in splits["dev"]}
    assert {f"yes/{name[:-4]}" for name, part in zip(names, parts, strict=True) if part == "dev"} <= in_dev
    assert [row.labels["word"] for row in splits["test"]] == ["no"]


def test_a_corpus_that_is_not_there_is_named(tmp_path):
    for name in MADE:
        layout = catalog.find(CORPORA, name)
        with pytest.raises(DataError, match=r"has no .*Give --from"):
            layout.read(CorpusPaths(str(tmp_path), tmp_path / "to"), layout.options())
