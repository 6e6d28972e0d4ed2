"""What fine-tuning gains and what it forgets: retained sets are scored before and after, and a line says the change."""

import pytest

from attune.run import Run
from attune.testing.data import make_corpus

from processes import attune
from tiny import write_recipe

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, and another that is fine-tuned from it on other words."""
    folder = tmp_path_factory.mktemp("retained")
    first = write_recipe(folder)
    assert attune("train", first, "train.steps=12").returncode == 0
    recipe = folder / "second.yaml"
    text = first.read_text().replace(f"run: {folder}/run", f"run: {folder}/second")
    recipe.write_text(text.replace("{family: ssl}", f"{{family: ssl, weights: {folder}/run}}"))
    old = make_corpus(folder / "old", utterances=8, seed=9)
    return folder, attune("train", recipe, f"data.retained=[{old}]", "train.steps=4"), old


def test_the_end_of_training_says_what_became_of_the_retained_set(trained):
    folder, done, _ = trained
    assert done.returncode == 0, done.stderr
    assert "step 0: retained wer" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("retained: WER "))
    assert "→" in line and "p " in line
    run = Run(folder / "second")
    assert {"retained", "retained-before", "test"} <= run.scores().keys()
    assert f"report: {run.folder / 'report.html'}" in done.stdout


def test_a_run_with_random_weights_has_no_before(tmp_path):
    recipe = write_recipe(tmp_path)
    done = attune("train", recipe, f"data.retained=[{tmp_path}/dev/manifest.jsonl]", "train.steps=4")
    assert "retained: no score before training" in done.stdout, done.stderr


def test_compare_decodes_a_retained_set_with_both(trained):
    folder, _, old = trained
    done = attune("compare", folder / "run", folder / "second", "--retained", old)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("here: WER") for line in lines) and any(
        line.startswith("retained: WER") for line in lines
    )
