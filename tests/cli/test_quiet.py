"""What the command line writes to stderr is attune's own: no warning, and no log line, of any library."""

import re

import pytest

from tiny import attune, write_recipe
from tiny_whisper import MULTILINGUAL, write_whisper

pytestmark = pytest.mark.recipe

START = "run: {folder}/run\ndata: {{train: [{train}], dev: [{dev}], test: [{dev}]}}\n"
END = """\
batches: {{micro_utterances: 4}}
optimizer: {{lr: 0.001}}
train: {{steps: 2, warmup: 1, precision: bf16, eval_every: 2, save_every: 1, keep_best: dev.wer}}
"""
MODELS = {
    "whisper with LoRA": """\
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: {folder}/model, window: trimmed}}
adapt: {{method: lora, rank: 2}}
""",
    "transducer": """\
task: {{name: transcribe, tokens: characters}}
model: {{family: transducer, encoder: contextnet, size: dummy, tokens: task}}
""",
}
PROGRESS = re.compile(r"[\w ]+: \w+ \d+/\d+$")


def foreign(stderr):
    return [line for line in stderr.splitlines() if line and not PROGRESS.match(line)]


@pytest.mark.parametrize("model", MODELS)
def test_no_verb_passes_on_a_warning(model, tmp_path):
    write_whisper(tmp_path / "model", MULTILINGUAL)
    recipe = write_recipe(tmp_path, utterances=6, text=START + MODELS[model] + END)
    run, audio = tmp_path / "run", tmp_path / "dev/audio/00000.wav"
    for words in (
        ["check", recipe],
        ["train", recipe],
        ["evaluate", run, "--on", "dev"],
        ["transcribe", run, audio],
        ["export", run, "--to", tmp_path / "exported"],
    ):
        done = attune(*words, CUDA_VISIBLE_DEVICES="")
        assert (done.returncode, foreign(done.stderr)) == (0, []), words
