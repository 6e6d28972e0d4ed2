import json
import multiprocessing

import numpy as np
import pytest
import soundfile

from attune.corpora import inspect_audio, inspect_corpus, open_corpus
from attune.errors import DataError
from attune.types import Utterance

from range_server import Behavior, serving


@pytest.fixture
def tone(tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.full(16000 * 10, 0.1), 16000)
    return path


def test_sound_audio_has_no_problem(tone):
    assert inspect_audio(Utterance("u", 10.0, tone)) is None
    assert inspect_audio(Utterance("u", 2.0, tone, start=8.0)) is None


@pytest.mark.parametrize(
    ("seconds", "is_wrong"), [(10.15, False), (9.85, False), (10.3, True), (9.7, True), (2.0, True)]
)
def test_a_length_more_than_two_percent_off_is_a_problem(tone, seconds, is_wrong):
    problem = inspect_audio(Utterance("u", seconds, tone))
    assert problem == (f"{tone} has 10.00 s of audio; the manifest has {seconds:.2f} s" if is_wrong else None)


def test_a_short_utterance_may_be_a_tenth_of_a_second_off(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.full(8000, 0.1), 16000)
    assert inspect_audio(Utterance("u", 0.59, tmp_path / "a.wav")) is None
    assert inspect_audio(Utterance("u", 0.61, tmp_path / "a.wav"))


def test_what_opens_an_address_is_not_told_with_its_problem(tmp_path):
    soundfile.write(tmp_path / "silent.wav", np.zeros(16000), 16000)
    (tmp_path / "text.wav").write_text("no audio")
    with serving(tmp_path, Behavior()) as url:
        told = [
            inspect_audio(Utterance("u", seconds, f"{url}/{name}.wav?X-Amz-Signature=5ecret"))
            for name, seconds in (("silent", 1.0), ("text", 1.0), ("none", 1.0))
        ]
    assert all(each and url in each and "5ecret" not in each for each in told)


def test_a_slice_beyond_the_end_is_a_problem(tone):
    assert "10.00 s long" in inspect_audio(Utterance("u", 2.0, tone, start=9.0))


def test_unreadable_or_silent_audio_is_a_problem(tmp_path, tone):
    soundfile.write(tmp_path / "zero.wav", np.zeros(16000), 16000)
    soundfile.write(tmp_path / "nan.wav", np.full(16000, np.nan), 16000, subtype="FLOAT")
    (tmp_path / "cut.wav").write_bytes(tone.read_bytes()[:1000])
    for name, reason in [("zero", "silent"), ("nan", "NaN"), ("cut", "truncated"), ("absent", "does not exist")]:
        assert reason in inspect_audio(Utterance("u", 1.0, tmp_path / f"{name}.wav"))


def corpus_of(folder, rows):
    (folder / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return open_corpus("train", [folder / "m.jsonl"], folder / "index")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_corpus_gives_one_result_for_each_row_in_order(tmp_path, tone, workers):
    rows = [{"id": f"u{n}", "audio": "a.wav", "seconds": 5 if n % 20 == 3 else 10} for n in range(50)]
    found = list(inspect_corpus(corpus_of(tmp_path, [*rows, {"id": "t", "text": "only"}]), workers))
    assert len(found) == 51
    assert [index for index, problem in enumerate(found) if problem] == [3, 23, 43]
    assert (found[23].id, found[23].where) == ("u23", f"{tmp_path}/m.jsonl:24")


def test_a_caller_may_stop_early(tmp_path, tone):
    results = inspect_corpus(corpus_of(tmp_path, [{"id": f"u{n}", "audio": "a.wav"} for n in range(500)]), 1)
    assert next(results) is None
    results.close()


def test_a_worker_that_is_killed_is_an_error_with_its_place(tmp_path, tone):
    results = inspect_corpus(corpus_of(tmp_path, [{"id": f"u{n}", "audio": "a.wav"} for n in range(500)]), 1)
    next(results)
    (worker,) = multiprocessing.active_children()
    worker.kill()
    with pytest.raises(DataError, match=r"`train` was killed.* soon after"):
        list(results)
