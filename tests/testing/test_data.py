import json

import numpy as np
import soundfile

from attune.corpora import open_manifest
from attune.testing.data import DIGITS, make_corpus, speak


def rows(manifest):
    return [json.loads(line) for line in manifest.read_text().splitlines()]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_words(tmp_path):
    one, same, other = (make_corpus(tmp_path / n, utterances=4, seed=s) for n, s in (("a", 1), ("b", 1), ("c", 2)))
    assert one.read_bytes() == same.read_bytes() != other.read_bytes()
    for row in rows(one):
        assert (tmp_path / "a" / row["audio"]).read_bytes() == (tmp_path / "b" / row["audio"]).read_bytes()


def test_rows_say_what_is_in_the_files(tmp_path):
    manifest = make_corpus(tmp_path, utterances=6)
    for row in rows(manifest):
        info = soundfile.info(tmp_path / row["audio"])
        assert (info.samplerate, info.channels) == (16_000, 1)
        assert info.frames == round(row["seconds"] * 16_000)
        assert set(row["text"].split()) <= set(DIGITS)
        assert row["labels"]["register"] in {"low", "middle", "high"}


def test_words_come_from_the_vocabulary_given(tmp_path):
    manifest = make_corpus(tmp_path, utterances=8, vocabulary=["ha", "ho"])
    assert {word for row in rows(manifest) for word in row["text"].split()} == {"ha", "ho"}


def test_speech_is_loud_enough_to_see_and_never_clips():
    samples = speak("seven", pitch=1.2)
    assert samples.dtype == np.float32
    assert 0.1 < np.abs(samples).max() < 0.5
    assert 0.3 < samples.size / 16_000 < 0.9


def test_the_manifest_opens_as_utterances(tmp_path):
    utterances = list(open_manifest(make_corpus(tmp_path, utterances=3), tmp_path / "index"))
    assert [utterance.id for utterance in utterances] == ["00000", "00001", "00002"]
    assert {utterance.labels["register"] for utterance in utterances} <= {"low", "middle", "high"}
    assert all(utterance.audio.is_file() for utterance in utterances)
