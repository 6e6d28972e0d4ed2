"""Finished runs without any training: manifests, predictions and scores as a run keeps them."""

import json
from pathlib import Path

from attune import catalog, recipe
from attune.corpora import open_corpus
from attune.metrics import Prediction
from attune.report.predictions import write_predictions
from attune.report.tables import scores_json
from attune.run import Run
from attune.testing.data import make_corpus
from attune.types import ScoringContext

RECIPE = """\
run: {folder}/run
data: {{train: [{manifest}], dev: [{manifest}], test: [{manifest}]}}
task: {task}
model: {{family: ssl}}
batches: {{micro_seconds: 3}}
optimizer: {{lr: 0.01}}
train: {{steps: 20}}
"""


def make_run(
    folder: Path, predict, task="{name: transcribe, normalizer: basic}", utterances=12, change=lambda row: row
):
    """A run whose predictions for `test` are `predict(utterance, number)`: a value, or a value and a score."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "data/manifest.jsonl"
    if not manifest.exists():
        make_corpus(folder / "data", utterances=utterances, seed=3)
        rows = [change(json.loads(line)) for line in manifest.read_text().splitlines()]
        manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Run(folder / "run")
    run.folder.mkdir(exist_ok=True)
    (run.folder / "recipe.yaml").write_text(RECIPE.format(folder=folder, manifest=manifest, task=task))
    score_run(run, predict)
    for step in range(1, 21):
        run.log("step", step=step, loss=3 / step, lr=1e-3, gradient_norm=1.0, audio_seconds_per_second=90.0)
        if step % 5 == 0:
            run.log("scores", step=step, split="dev", utterances=6, wer=90.0 / step, best=True, problems=[])
    run.set_status("done")
    return run


def score_run(run: Run, predict, split="test"):
    """Predictions for a set and their scores, as the run's task has them."""
    loaded = recipe.load(run.folder / "recipe.yaml").recipe
    corpus = open_corpus(split, [Path(each) for each in loaded.data.test], run.data)
    kind = catalog.find(catalog.TASKS, loaded.task.name)
    run.task.mkdir(exist_ok=True)
    kind.prepare(loaded.task.config, corpus, run.task)
    task = kind(loaded.task.config, run.task)
    predictions = []
    for number, utterance in enumerate(corpus):
        found = predict(utterance, number)
        value, score = found if isinstance(found, tuple) else (found, -1.0)
        predictions.append(Prediction(utterance.id, value, task.reference(utterance), score))
    by_id = {utterance.id: utterance for utterance in corpus}
    context = ScoringContext(split, run.predictions_folder, {}, by_id.__getitem__)
    write_predictions(run.predictions(split), predictions)
    run.add_scores(split, {**scores_json(task.score(predictions, context)), "utterances": len(predictions)})
