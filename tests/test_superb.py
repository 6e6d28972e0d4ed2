"""Every SUPERB recipe trains and scores a small corpus of its layout, with its own settings but for the size."""

import json
from pathlib import Path

import numpy as np
import pytest

from attune import catalog
from attune import recipe as recipes
from attune.cli import main
from attune.testing.data import make_corpus

import small_corpora as corpora

pytestmark = pytest.mark.recipe
RECIPES = sorted((Path(recipes.__file__).parent / "recipes").glob("superb*.yaml"))
LABELS = {"word": "yes", "action": "on", "object": "light", "location": "here", "emotion": "sad"}


def labeled(folder, name, seed):
    """Speech with a label of every kind that a recipe asks for, two values each."""
    rows = [json.loads(line) for line in make_corpus(folder, utterances=6, seed=1).read_text().splitlines()]
    for number, row in enumerate(rows):
        row["labels"] = {label: value if number % 2 else f"no {value}" for label, value in LABELS.items()}
        row["speaker"] = f"s{number % 3}"
    return corpora.write(folder, name, rows)


def words(folder, name, seed):
    return corpora.words(folder, name, 6, seed)


WRITERS = {
    "classify": labeled,
    "transcribe": words,
    "recognize_phonemes": words,
    "fill_slots": words,
    "verify_speaker": lambda *place: corpora.speakers(*place[:2], range(3), 3, 1, (2.1, 2.4)),
    "diarize": lambda *place: corpora.conversations(*place[:2], 4, 1),
    "enhance": lambda *place: corpora.noisy(*place[:2], 4, 1),
    "separate": lambda *place: corpora.mixtures(*place[:2], 4, 1),
    "translate": lambda *place: corpora.translated(*place[:2], 4, 1),
    "convert_voice": lambda *place: corpora.parallel(*place[:2], 3, 1),
    "spot_queries": lambda *place: corpora.searched(*place[:2], 6, 1),
}
SIZES = {"width": 16, "pooled": 24, "iterations": 2}


def small(recipe, folder):
    """Overrides that make a recipe small and local, and leave everything else as it is."""
    name = recipe.task.name
    paths = {split: WRITERS[name](folder / split, split, 1) for split in ("train", "dev", "test")}
    changes = [f"data.{split}=[{path}]" for split, path in paths.items()]
    changes += [f"run={folder / 'run'}", "train.steps=2", "train.warmup=0", "train.eval_every=2", "train.save_every=2"]
    head = getattr(recipe.task.config, "head", None)
    changes += [f"task.head.{key}={value}" for key, value in SIZES.items() if head and key in head.__slots__]
    if name == "recognize_phonemes":
        lexicon = [f"{word} {' '.join(word.upper())}\n" for word in corpora.DIGITS]
        (folder / "lexicon.txt").write_text("".join(lexicon))
        changes += [f"task.lexicon=[{folder / 'lexicon.txt'}]"]
    if name == "spot_queries":
        changes += [f"task.matches.{split}={folder / split / f'{split}-matches.txt'}" for split in ("dev", "test")]
    if name == "verify_speaker":
        for split in ("dev", "test"):
            trials = folder / f"{split}-trials.txt"
            trials.write_text(f"1 {split}-0-0.wav {split}-0-1.wav\n0 {split}-0-0.wav {split}-1-0.wav\n")
            changes += [f"task.trials.{split}={trials}"]
    if name == "convert_voice":
        changes += ["task.envelope=spectrum"]
    if name == "enhance":
        changes += ["task.pesq=false", "train.keep_best=dev.si_sdri"]
    if recipe.train.eval_utterances:
        changes += ["train.eval_utterances=2"]
    return changes


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_trains_and_scores(path, tmp_path):
    recipe = recipes.load(path).recipe
    assert main(["train", str(path), *small(recipe, tmp_path), "--workers=0", "--device=cpu"]) == 0
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())["test"]["scores"]
    primary = catalog.find(catalog.TASKS, recipe.task.name).metrics[0]
    assert np.isfinite(scores[primary.name]["value"])


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_nothing_is_chosen_on_test(path):
    recipe = recipes.load(path).recipe
    assert recipe.train.keep_best.startswith("dev.")
    shared = {*recipe.data.test} & {*recipe.data.train, *recipe.data.dev}
    assert shared <= {"data/quesst14/documents.jsonl"}  # in which all queries are looked for
