"""Checkpoints of other toolkits are transcribed, loaded and evaluated as they are, without `attune import`."""

import json

import pytest

import attune
from attune.cli import main
from attune.errors import ModelError
from attune.testing.data import make_corpus
from attune.types import Utterance

from tiny_whisper import MULTILINGUAL, write_whisper
from transducers import golden_folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"), utterances=3, seed=4)


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    folder = write_whisper(tmp_path_factory.mktemp("whisper") / "theirs", MULTILINGUAL)
    (folder / "generation_config.json").write_text(json.dumps({"language": "be", "task": "translate"}))
    assert main(["import", str(folder), "--to", str(folder.parent / "own")]) == 0
    return folder


def test_a_transformers_folder_transcribes_as_its_import_does(whisper, corpus, capsys):
    audio = sorted(map(str, (corpus.parent / "audio").iterdir()))
    capsys.readouterr()
    texts = []
    for model in (whisper, whisper.parent / "own"):
        assert main(["transcribe", str(model), *audio, "--device=cpu"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and texts[0].count("\n") == 3
    assert sorted(path.name for path in whisper.parent.iterdir()) == ["own", "theirs"]


def test_a_checkpoints_own_language_is_used_unless_another_is_asked_for(whisper):
    prompts = {}
    for language in (None, "be", "th"):
        codec = attune.load(whisper, device="cpu", language=language).loaded.task_model.codec
        prompts[language] = repr(codec.prompt(Utterance("", 1.0)))
    assert prompts[None] == prompts["be"] != prompts["th"]


def test_a_transformers_folder_is_evaluated_on_a_manifest(whisper, corpus, capsys):
    capsys.readouterr()
    found = []
    for model in (whisper, whisper.parent / "own"):
        assert main(["evaluate", str(model), "--on", str(corpus), "--workers=0", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["scores"])
    assert found[0] == found[1] and found[0]["wer"]
    assert main(["evaluate", str(whisper), "--workers=0"]) == 2
    assert "--on MANIFEST" in capsys.readouterr().err


def test_a_nemo_file_is_loaded_as_it_is(corpus):
    model = attune.load(golden_folder("contextnet") / "model.nemo", device="cpu")
    assert isinstance(model.transcribe(corpus.parent / "audio/00000.wav"), str)


def test_what_no_family_reads_is_a_message(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match="is not a run, a model or a recipe"):
        attune.load(tmp_path / "model.bin")
