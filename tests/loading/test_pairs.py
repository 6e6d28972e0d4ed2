"""A family and a task that do not go together are refused at once, with what would."""

import pytest

from attune import recipe as recipes
from attune.cli import main
from attune.errors import ConfigError
from attune.loading.pairs import require_fit

RECIPE = """\
run: runs/x
data: {{train: [a.jsonl]}}
task: {{name: {task}}}
model: {model}
batches: {{micro_utterances: 8}}
optimizer: {{lr: 1e-4}}
train: {{steps: 1}}
"""
WHISPER = "{family: whisper, weights: hf://openai/whisper-tiny}"
TRANSDUCER = "{family: transducer, encoder: contextnet, size: dummy, tokens: task}"


@pytest.fixture
def written(tmp_path):
    def write(task, model):
        path = tmp_path / "recipe.yaml"
        path.write_text(RECIPE.format(task=task, model=model))
        return path

    return write


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        (
            "classify",
            WHISPER,
            "The family 'whisper' cannot learn the task 'classify': it needs a task with text. "
            "Set task.name to transcribe, or model.family to ssl.",
        ),
        ("diarize", TRANSDUCER, "'transducer' cannot learn the task 'diarize': it needs a task with text or tokens. "),
        ("verify_speaker", WHISPER, "or model.family to ssl"),
        ("recognize_phonemes", WHISPER, "or model.family to aed or ssl or transducer"),
        ("toy.lm", "{family: ssl}", "it needs a task with a head. Set task.name to classify or "),
    ],
)
def test_a_wrong_pair_is_refused_with_what_fits(written, task, model, message):
    with pytest.raises(ConfigError) as error:
        require_fit(recipes.load(written(task, model)).recipe)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("transcribe", WHISPER),
        ("transcribe", TRANSDUCER),
        ("recognize_phonemes", TRANSDUCER),
        ("diarize", "{family: ssl}"),
        ("toy.lm", "{family: toy.lm}"),
    ],
)
def test_what_fits_is_not_refused(written, task, model):
    require_fit(recipes.load(written(task, model)).recipe)


def test_training_refuses_it_before_anything_is_fetched(written, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "no audio", "label": "x"}\n')
    assert main(["train", str(written("classify", WHISPER))]) == 2
    assert "Set task.name to transcribe, or model.family to ssl." in capsys.readouterr().err


def test_a_task_with_tokens_of_its_own_is_not_learned_in_those_of_the_weights(written, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "no audio", "seconds": 1.0}\n')
    (tmp_path / "own.nemo").touch()
    task = "recognize_phonemes, lexicon: [lexicon.txt]"
    recipe = written(task, "{family: transducer, weights: own.nemo}")
    assert main(["check", str(recipe), "--audio", "0"]) == 2
    assert "this task has no text. Set model.tokens=task." in capsys.readouterr().out
