"""The template: tokenizer, language model, recognizer, its language model fine-tuned alone, evaluation; its data."""

import json
import tarfile
import zipfile

import pytest

from attune.cli import main
from attune.files import sha256
from attune.sources import Cache, locate

import miniatures
from killing import bits
from processes import start, wait
from range_server import Behavior, serving
from test_recipes import kill_when_saved

HERE = ["--workers=0", "--device=cpu"]


def few(tmp_path, split, rows):
    """The first rows of a split of the demo corpus."""
    manifest = locate(f"attune://demo/{split}.jsonl", Cache(tmp_path / "cache"))
    read = [json.loads(line) for line in manifest.read_text().splitlines()[:rows]]
    path = tmp_path / f"{split}.jsonl"
    texts = [json.dumps({**row, "audio": str(manifest.parent / row["audio"])}) + "\n" for row in read]
    path.write_text("".join(texts))
    return path


@pytest.mark.recipe
def test_the_template_runs_from_tokenizer_to_evaluation_and_kills_do_not_show(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train, dev, test = (few(tmp_path, split, rows) for split, rows in (("train", 24), ("dev", 6), ("test", 6)))
    data = [f"data.train=[{train}]", f"data.dev=[{dev}]", f"data.test=[{test}]"]
    assert main(["tokenizer", "template-tokenizer", *data, "task.vocabulary=60"]) == 0
    steps = ["train.warmup=0", "train.save_every=1"]
    speechbrains = ["model.size=tiny", "optimizer.name=adadelta", "optimizer.lr=1", "train.schedule=newbob"]
    assert main(["train", "template-lm", *data, *steps, "train.steps=4", "train.eval_every=2", *HERE]) == 0

    asr = ["train", "template-asr", *data, *steps, *speechbrains, "train.steps=2", "train.eval_every=1", *HERE]
    assert wait(start([*asr, "run=runs/template/other"])) == [0]
    assert wait(start(asr, before=lambda _: kill_when_saved("step-000001"))) == [-9]
    assert wait(start(asr)) == [0]
    assert bits(tmp_path / "runs/template/asr", 2) == bits(tmp_path / "runs/template/other", 2)

    recognizer = tmp_path / "runs/template/asr/model/model.safetensors"
    before = sha256(recognizer), sha256(tmp_path / "runs/template/lm/model/model.safetensors")
    fine_tuning = ["train", "template-finetune-lm", f"data.train=[{dev}]", f"data.test=[{test}]", *steps]
    assert main([*fine_tuning, "train.steps=3", *HERE]) == 0
    tuned = tmp_path / "runs/template/finetune-lm/model/model.safetensors"
    assert (sha256(recognizer), sha256(tmp_path / "runs/template/lm/model/model.safetensors")) == before
    assert sha256(tuned) != before[1]

    capsys.readouterr()
    assert (
        main(["evaluate", "template-evaluate", *speechbrains[:1], *data, "--on", "test", "--per-rank", "--json", *HERE])
        == 0
    )
    scored = json.loads(capsys.readouterr().out)
    assert scored["utterances"] == 6 and scored["search"]["lm"] == "runs/template/finetune-lm"


@pytest.mark.recipe
def test_mini_librispeech_and_rooms_are_fetched_unpacked_and_trained_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path / "cache"))
    served = tmp_path / "served"
    served.mkdir()
    for name in ("train-clean-5", "dev-clean-2"):
        root = miniatures.librispeech(tmp_path / name, (name,))
        with tarfile.open(served / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(root / "LibriSpeech", "LibriSpeech")
    with zipfile.ZipFile(served / "rirs_noises.zip", "w") as archive:
        for name in ("simulated_rirs/small/Room001-1", "pointsource_noises/noise-1", "simulated_rirs/small/Room001-2"):
            archive.write(miniatures.audio(tmp_path / f"{name}.wav"), f"RIRS_NOISES/{name}.wav")
    with serving(served, Behavior()) as url:
        for name in ("train-clean-5", "dev-clean-2"):
            to = f"data/{name}"
            assert main(["prepare", "mini_librispeech", "--from", f"{url}/{name}.tar.gz", "--to", to, "--jobs=1"]) == 0
        words = ["prepare", "openrir", "--from", f"{url}/rirs_noises.zip", "--to", "data/openrir", "--jobs=1"]
        assert main(words) == 0
    rows = {name: (tmp_path / f"data/openrir/{name}.jsonl").read_text().splitlines() for name in ("rooms", "noises")}
    assert {name: len(found) for name, found in rows.items()} == {"rooms": 2, "noises": 1}

    manifests = "data/train-clean-5/train-clean-5.jsonl", "data/dev-clean-2/dev-clean-2.jsonl"
    data = [f"data.train=[{manifests[0]}]", *(f"data.{split}=[{manifests[1]}]" for split in ("dev", "test"))]
    assert main(["tokenizer", "template-tokenizer", *data, "task.vocabulary=16"]) == 0
    rooms = [f"augment.{name}.folder=data/openrir" for name in ("rooms", "noise")]
    words = ["train", "template-asr", *data, *rooms, "decode.final.lm=null", "--debug", *HERE]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "training: step 4/4" in printed and "done: runs/template/asr-debug/model" in printed
