"""What dev and test share with the training set is found by id, by speaker, and by what the recordings hold."""

import json
import shutil

import numpy as np
import pytest
import soundfile

from attune.cli import main
from attune.corpora import find_leaks, open_corpus, sample_corpus

from tiny import write_recipe


def recording(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.random.default_rng(seed).uniform(-0.1, 0.1, 8000).astype(np.float32), 16000)
    return path


def corpus(folder, name, rows):
    manifest = folder / f"{name}.jsonl"
    manifest.write_text("".join(json.dumps({"text": "x", **row}) + "\n" for row in rows))
    return open_corpus(name, [manifest], folder / "index")


@pytest.fixture
def train(tmp_path):
    rows = [{"id": f"t{n}", "audio": str(recording(tmp_path / f"t{n}.wav", n)), "speaker": f"s{n}"} for n in range(6)]
    return corpus(tmp_path, "train", rows)


def test_sets_that_are_apart_share_nothing(tmp_path, train):
    # All files have the same size: only their content tells them apart.
    rows = [{"id": f"d{n}", "audio": str(recording(tmp_path / f"d{n}.wav", 100 + n)), "speaker": "x"} for n in range(3)]
    assert find_leaks(train, {"dev": corpus(tmp_path, "dev", rows)}) == ()


def test_a_copy_under_another_name_is_the_same_recording(tmp_path, train):
    shutil.copy(tmp_path / "t3.wav", tmp_path / "renamed.wav")
    rows = [
        {"id": "t0", "audio": str(recording(tmp_path / "d0.wav", 100))},
        {"id": "new", "audio": str(tmp_path / "renamed.wav"), "speaker": "s5"},
        {"id": "fine", "audio": str(recording(tmp_path / "d1.wav", 101)), "speaker": "s99"},
    ]
    dev = corpus(tmp_path, "dev", rows)
    leaks = find_leaks(train, {"dev": dev, "test": sample_corpus(dev, 1, 0)})
    assert [str(leak) for leak in leaks[:3]] == [
        "dev shares 1 of 3 ids with train: t0",
        "dev shares 1 of 3 recordings with train: new",
        "dev shares 1 of 2 speakers with train: s5",
    ]
    assert [(leak.split, leak.shared) for leak in leaks[3:]] == [("test", 1)] * 3  # a sample is of a set that leaks


def test_other_parts_of_a_recording_are_other_recordings(tmp_path):
    long = str(recording(tmp_path / "long.wav", 0))
    parts = [{"id": f"p{n}", "audio": long, "start": n / 10, "seconds": 0.1} for n in range(4)]
    train = corpus(tmp_path, "train", parts[:2])
    assert find_leaks(train, {"dev": corpus(tmp_path, "dev", parts[2:])}) == ()
    (ids, recordings) = find_leaks(train, {"test": corpus(tmp_path, "test", parts[1:3])})
    assert (ids.shared, recordings.shared) == (1, 1)


def test_check_and_train_warn_and_go_on(tmp_path, capsys):
    recipe = write_recipe(tmp_path, utterances=8)
    train = f"data.dev=[{tmp_path / 'train/manifest.jsonl'}]"
    assert main(["check", str(recipe), train, "--no-audio"]) == 0
    assert "warning: dev shares 8 of 8 recordings with train: " in capsys.readouterr().out
    assert main(["train", str(recipe), train, "train.steps=3", "train.eval_every=3", "--workers=0"]) == 0
    assert "warning: dev shares 8 of 8 ids with train: " in capsys.readouterr().out
    assert '"leak"' in (tmp_path / "run/log.jsonl").read_text()
