"""A whole experiment in seconds: a corpus of tones, a small model and a recipe."""

from pathlib import Path

from attune.batches.collate import collate
from attune.testing.data import make_corpus
from attune.types import LoadedRow

RECIPE = """\
run: {folder}/run
seed: 17
data: {{train: [{train}], dev: [{dev}], test: [{dev}]}}
task: {{name: transcribe, head: {{layers: 1, width: 24, dropout: 0.1}}}}
model: {{family: ssl}}
batches: {{micro_seconds: 3, micros_per_step: 4}}
optimizer: {{lr: 0.01}}
train: {{steps: 12, warmup: 2, eval_every: 6, save_every: 3, keep_best: dev.wer, log_every: 1}}
"""
EPOCH = "batches.micro_seconds=8"  # a step that has every row of the corpus; and time to be killed in


def write_recipe(folder: Path, utterances: int = 24, text: str = RECIPE) -> Path:
    """Make a corpus and a recipe in `folder`, and return the recipe."""
    train = make_corpus(folder / "train", utterances=utterances, seed=1)
    dev = make_corpus(folder / "dev", utterances=6, seed=2)
    recipe = folder / "recipe.yaml"
    recipe.write_text(text.format(folder=folder, train=train, dev=dev))
    return recipe


def batch_of(rows):
    """Rows of (id, audio, target) as a batch."""
    return collate([LoadedRow(*row) for row in rows])
