"""What the command line writes to stderr is attune's own: no warning, and no log line, of any library."""

import json
import os
import re
import subprocess
import sys

import pytest

from tiny import write_recipe
from tiny_whisper import MULTILINGUAL, write_whisper

pytestmark = pytest.mark.recipe

START = "run: {folder}/run\ndata: {{train: [{train}], dev: [{dev}], test: [{dev}]}}\n"
END = """\
batches: {{micro_utterances: 4}}
optimizer: {{lr: 0.001}}
train: {{steps: 2, warmup: 1, precision: bf16, eval_every: 2, save_every: 1, keep_best: dev.wer}}
"""
MODELS = {
    "lora": """\
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: {folder}/model, window: trimmed}}
adapt: {{method: lora, rank: 2}}
""",
    "transducer": """\
task: {{name: transcribe, tokens: characters}}
model: {{family: transducer, encoder: contextnet, size: dummy, tokens: task}}
""",
}
PROGRESS = re.compile(r"[\w ]+: \w+ \d+/\d+(, ETA [\d:]+)?$")


def foreign(stderr):
    return [line for line in stderr.splitlines() if line and not PROGRESS.match(line)]


COMMANDS = """
import json, sys
from attune.cli import main
sys.exit(max(main(words) for words in json.loads(sys.argv[1])))
"""


def test_no_verb_passes_on_a_warning(tmp_path):
    """One new interpreter for all of them: a library that warns when it is first used does so in any of them."""
    words = []
    for model, text in MODELS.items():
        folder = tmp_path / model
        folder.mkdir()
        write_whisper(folder / "model", MULTILINGUAL)
        recipe = write_recipe(folder, utterances=6, text=START + text + END)
        run, audio = folder / "run", folder / "dev/audio/00000.wav"
        words += [
            ["check", recipe],
            ["train", recipe],
            ["evaluate", run, "--on", "dev"],
            ["transcribe", run, audio],
            ["export", run, "--to", folder / "exported"],
        ]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps([list(map(str, command)) for command in words])],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, foreign(done.stderr)) == (0, [])
    assert all((tmp_path / model / "exported").exists() for model in MODELS)
