"""Every task learns: on a small corpus of its layout it beats chance by a wide margin, on voices it does not know.

Synthetic voices are noise through resonances; with `ATTUNE_TEST_DATA` (a folder with an4/train.jsonl and
an4/dev.jsonl) speakers are real, and with espeak-ng words are.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

import attune
from attune.run import Run

import small_corpora as corpora

pytestmark = pytest.mark.recipe
AN4 = Path(os.environ.get("ATTUNE_TEST_DATA", "no-such-folder")) / "an4"

RECIPE = """\
run: {folder}/run
seed: 5
data: {{train: [{train}], dev: [{dev}], test: [{test}]}}
task: {task}
model: {{family: ssl, upstream: fbank, stack: {stack}}}
batches: {{micro_utterances: {batch}}}
optimizer: {{lr: {lr}, weight_decay: 0}}
train: {{steps: {steps}, warmup: 5, eval_every: {steps}, save_every: {steps}, keep_best: dev.{metric}}}
"""


@dataclass(frozen=True)
class Case:
    """A task, its corpora of training, dev and test, how long it learns, and what it has to reach."""

    task: str
    write: object  # folder, split, seed → manifest
    metric: str
    reaches: float
    steps: int
    lr: float = 0.005
    stack: int = 3
    batch: int = 16


def learned(case, folder):
    """The test scores of a run."""
    paths = [case.write(folder, name, seed) for seed, name in enumerate(("train", "dev", "test"), start=1)]
    values = dict(zip(("train", "dev", "test"), paths, strict=True))
    settings = {name: getattr(case, name) for name in ("task", "stack", "batch", "lr", "steps", "metric")}
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=folder, **values, **settings))
    attune.train(recipe)
    scores = json.loads((Run(folder / "run").folder / "scores.json").read_text())["test"]
    return {name: each["value"] for name, each in scores["scores"].items()}, scores


def several(many, few):
    """As many utterances to learn from as `many`, and `few` to score."""
    return lambda name: many if name == "train" else few


def words(folder, name, seed):
    pitches = (0.96, 0.98, 1.02, 1.04) if name == "train" else (1.0,)
    return corpora.words(folder, name, 60 if name == "train" else 12, seed, pitches)


def letters(folder, name, seed):
    """The text as phones: every letter is one."""
    rows = [json.loads(line) for line in words(folder, name, seed).read_text().splitlines()]
    return corpora.write(folder, name, [{**row, "text": " ".join(row["text"].replace(" ", ""))} for row in rows])


def unseen_speakers(folder, name, seed):
    who = {"train": range(24), "dev": range(30, 36), "test": range(40, 50)}[name]
    return corpora.speakers(folder, name, who, 6 if name == "train" else 4, seed)


def same_speakers(folder, name, seed):
    return corpora.speakers(folder, name, range(12), 8 if name == "train" else 3, seed)


def conversations(folder, name, seed):
    who = range(24) if name == "train" else range(30, 40)
    return corpora.conversations(folder, name, 48 if name == "train" else 8, seed, who)


def mixtures(folder, name, seed):
    return corpora.mixtures(folder, name, 24 if name == "train" else 6, seed)


def noisy(folder, name, seed):
    return corpora.noisy(folder, name, 24 if name == "train" else 6, seed)


MASKS = "head: {layers: 1, width: 48, dropout: 0}"
CASES = {
    # Chance: every phone wrong, an F1 of 50, one speaker in twelve, an EER of 50, a DER of 100, no improvement.
    "recognize_phonemes": Case(
        "{name: recognize_phonemes, head: {layers: 0, width: 96}}", letters, "per", 40, 120, 0.01, batch=20
    ),
    "fill_slots": Case(
        "{name: fill_slots, head: {layers: 1, width: 48, dropout: 0}}", words, "slot_type_f1", 85, 120, 0.01, batch=20
    ),
    "classify": Case("{name: classify, label: speaker, head: {width: 48}}", same_speakers, "accuracy", 80, 60, 0.01),
    "verify_speaker": Case(
        "{name: verify_speaker, head: {width: 48, pooled: 64, margin: 0.1}}", unseen_speakers, "eer", 20, 80, 0.003
    ),
    "diarize": Case("{name: diarize, head: {width: 48}}", conversations, "der", 30, 100, 0.01, batch=8),
    "enhance": Case(f"{{name: enhance, {MASKS}}}", noisy, "si_sdri", 4, 40, 0.01, stack=1, batch=8),
    "separate": Case(f"{{name: separate, {MASKS}}}", mixtures, "si_sdri", 4, 40, 0.01, stack=1, batch=8),
}


@pytest.mark.parametrize("name", CASES)
def test_learns(name, tmp_path):
    case = CASES[name]
    values, _ = learned(case, tmp_path)
    print(name, values)
    is_rate = case.metric in ("per", "eer", "der")
    assert values[case.metric] < case.reaches if is_rate else values[case.metric] > case.reaches
