"""Models that have learned nothing, in a moment; what they predict is the same every time."""

from pathlib import Path

from attune.corpora import open_corpus
from attune.loading.begin import begin_model
from attune.loading.pretrained import ModelFolders, export
from attune.recipe import load
from attune.run import Run
from attune.site import this_site
from attune.world import World

from tiny import write_recipe


def write_model(folder: Path, *overrides: str, utterances: int = 8) -> Path:
    """Export the model of the tiny recipe under these overrides; its data are beside it."""
    recipe = load(write_recipe(folder, utterances), overrides).recipe
    run = Run(folder)
    corpus = open_corpus("train", [folder / "train/manifest.jsonl"], run.data)
    begun = begin_model(recipe, corpus, ModelFolders(run.task, run.assets), this_site(), World.alone())
    export(run.model, recipe, run, begun.loaded.task_model)
    return run.model
