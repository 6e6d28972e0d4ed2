"""Memory is looked at before a run, and a run that has too little of it says so on all ranks."""

import json

import numpy as np
import pytest
import torch

from attune.loading.data import WorstMicroBatch, open_split, planner, training_rows, worst_micro_batch
from attune.recipe import load
from attune.run import Run
from attune.site import Site
from attune.sources import Cache
from attune.stages.fit import Fit, _propose, _Used
from attune.world import World

from processes import attune, kill, start
from tiny import EPOCH, write_recipe

GIB = 2**30


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("memory"))


@pytest.mark.recipe
def test_a_rank_that_runs_out_of_memory_ends_all_with_the_utterances_and_the_setting(recipe, tmp_path):
    run = tmp_path / "run"

    def starve(rank):
        from attune.tasks.transcribe.head import CtcHead

        real, calls = CtcHead.loss, []

        def loss(self, *arguments):
            calls.append(1)
            if rank == 1 and len(calls) == 2:
                torch.empty(1 << 50)  # what really happens when there is no memory
            return real(self, *arguments)

        CtcHead.loss = loss

    words = ["train", str(recipe), f"run={run}", "--workers=0", "train.eval_every=null", "train.keep_best=null"]
    ranks = start(words, 2, starve)
    codes = [rank.join(60) or rank.exitcode for rank in ranks]
    kill(ranks)
    assert codes == [1, 1]
    status = Run(run).status()
    reason = status.message
    assert status.error_kind == "TrainingError"
    assert "Out of memory in step 1 on 1 of 2 ranks, with a micro-batch of" in reason
    assert "batches.micro_seconds" in reason and "000" in reason  # an id


@pytest.mark.recipe
def test_the_worst_batch_is_run_and_a_larger_one_proposed_also_for_a_mix_in_which_rows_come_twice(recipe):
    train = recipe.parent / "train" / "manifest.jsonl"
    few = recipe.parent / "few.jsonl"
    rows = [json.loads(line) for line in train.read_text().splitlines()[:2]]
    again = [row | {"id": f"few-{row['id']}", "audio": str(train.parent / row["audio"])} for row in rows]
    few.write_text("".join(json.dumps(row) + "\n" for row in again))
    mix = f"data.train=[{train}, {few}]", "data.mix.weights=[1, 1]"
    done = attune("check", recipe, "--no-audio", "--fit", "--json", *mix)
    assert done.returncode == 0, done.stderr
    fit = json.loads(done.stdout)["fit"]
    assert fit["before"] < fit["peak"] < fit["limit"] and fit["proposed"] > fit["now"] == 3
    assert fit["setting"] == "batches.micro_seconds" and fit["seconds"] <= 3


def test_the_worst_batch_has_the_most_padded_audio(recipe, tmp_path):
    loaded = load(recipe, [EPOCH]).recipe
    corpus = open_split(loaded, "train", tmp_path, Site(Cache(tmp_path), 0), World.alone())
    rows = worst_micro_batch(corpus, planner(loaded, corpus, training_rows(loaded, corpus))(0)).rows
    assert corpus.seconds[rows].max() * len(rows) <= 8 < corpus.seconds[rows].max() * (len(rows) + 1) + 2


def proposed(recipe, used, *overrides) -> Fit:
    worst = WorstMicroBatch(np.arange(4), 8.0, ("a",))
    return _propose(load(recipe, overrides).recipe, used, worst, 2.0)


def test_what_fits_is_counted_in_rows_of_the_longest(recipe):
    # 1 GiB before, 4 rows of 2 s take 1 GiB: 8 GiB leave room for 28 rows.
    fit = proposed(recipe, _Used(GIB, 2 * GIB, 8 * GIB))
    assert fit.fits and fit.proposed == 56
    by_count = ("batches.micro_seconds=null", "batches.micro_utterances=4")
    assert proposed(recipe, _Used(GIB, 2 * GIB, 8 * GIB), *by_count).proposed == 28


def test_what_does_not_fit_is_not_proposed(recipe):
    too_large = proposed(recipe, _Used(GIB, 3 * GIB, 2 * GIB))
    assert not too_large.fits and too_large.proposed == 4
    assert proposed(recipe, _Used(GIB, None, 2 * GIB)).proposed is None
    assert proposed(recipe, _Used(GIB, 2 * GIB, GIB)).proposed is None
