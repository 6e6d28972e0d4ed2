import json
from collections import Counter

import numpy as np
import pytest

from attune.batches.load import Reader
from attune.batches.mix import draw, shares, turns
from attune.batches.plan import Budget, plan_epoch
from attune.corpora import open_corpus, select
from attune.loading.data import planner
from attune.recipe import load as load_recipe
from attune.testing import make_corpus

from processes import attune
from tiny import RECIPE, write_recipe

SETS = np.array([0] * 10 + [1] * 4)
ROWS = np.arange(14)


def counts(drawn):
    return Counter((drawn % 14).tolist())


def test_weights_are_shares_of_the_audio_and_the_least_repeated_set_comes_once():
    assert turns([100.0, 10.0], [1.0, 1.0], None) == [1.0, 10.0]
    assert turns([100.0, 10.0], [100.0, 10.0], None) == [1.0, 1.0]
    assert turns([10.0, 10.0, 10.0], [2.0, 1.0, 5.0], None) == [2.0, 1.0, 5.0]


def test_a_temperature_of_one_changes_nothing_and_a_high_one_makes_shares_alike():
    assert turns([100.0, 10.0], None, 1.0) == [1.0, 1.0]
    assert turns([100.0, 1.0], None, 2.0) == [1.0, 10.0]
    assert turns([100.0, 10.0], None, 1000.0)[1] == pytest.approx(10.0, rel=0.01)


def test_no_utterance_of_any_set_is_left_out_and_each_turn_has_its_own_number():
    drawn = draw(ROWS, SETS, [1.0, 2.5], 14, seed=3, epoch=0)
    assert len(set(drawn.tolist())) == len(drawn) == 10 + 8 + 2
    own = counts(drawn)
    assert all(own[row] == 1 for row in range(10))
    assert sorted(own[row] for row in range(10, 14)) == [2, 2, 3, 3]


def test_the_fraction_of_a_set_is_another_one_in_another_epoch_and_the_same_in_the_same():
    halves = [frozenset(draw(ROWS, SETS, [1.5, 1.0], 14, 3, epoch)[10:15].tolist()) for epoch in range(20)]
    assert len(set(halves)) > 5
    assert (draw(ROWS, SETS, [1.5, 1.0], 14, 3, 7) == draw(ROWS, SETS, [1.5, 1.0], 14, 3, 7)).all()


def test_the_shares_say_what_an_epoch_has():
    seconds = np.array([1.0] * 10 + [2.0] * 4)
    first, second = shares(["a", "b"], seconds, ROWS, SETS, [1.0, 2.5])
    assert (first.utterances, first.drawn, second.drawn, second.times) == (10, 10, 10, 2.5)
    assert (first.part, second.part) == (pytest.approx(1 / 3), pytest.approx(2 / 3))


@pytest.fixture
def two_sets(tmp_path):
    for name, utterances, seed in (("one", 12, 1), ("two", 4, 2)):
        manifest = make_corpus(tmp_path / name, utterances=utterances, seed=seed)
        rows = [json.loads(line) for line in manifest.read_text().splitlines()]
        lines = [json.dumps(row | {"id": f"{name}-{row['id']}"}) for row in rows]
        manifest.write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_mixed_plan_has_every_row_as_often_as_its_set_is_had_in_every_epoch(two_sets):
    recipe_path = write_recipe(two_sets)
    manifests = [two_sets / name / "manifest.jsonl" for name in ("one", "two")]
    words = [f"data.train=[{','.join(map(str, manifests))}]", "data.mix.weights=[1, 1]"]
    recipe = load_recipe(recipe_path, words).recipe
    corpus = open_corpus("train", manifests, two_sets / "index")
    assert corpus.sets == ("one/manifest", "two/manifest")
    assert corpus.origins.tolist() == [0] * 12 + [1] * 4
    own = [float(corpus.seconds[corpus.origins == number].sum()) for number in (0, 1)]
    plan = planner(recipe, corpus, select(corpus, 0.1, 30.0))
    for epoch in range(3):
        order = plan(epoch).order
        per_row = Counter((order % 16).tolist())
        assert all(per_row[row] == 1 for row in range(12))
        assert all(per_row[row] in (int(own[0] / own[1]), int(own[0] / own[1]) + 1) for row in range(12, 16))
        heard = [
            float(corpus.seconds[[row for row in order % 16 if corpus.origins[row] == number]].sum())
            for number in (0, 1)
        ]
        assert heard[1] / sum(heard) == pytest.approx(0.5, abs=0.06)


def test_the_second_turn_of_an_utterance_sounds_another_way(two_sets):
    from attune.audio.augment import open_augmenter
    from attune.audio.settings import AugmentConfig

    corpus = open_corpus("train", [two_sets / "one/manifest.jsonl"], two_sets / "index")
    augmenter = open_augmenter(AugmentConfig(gain_db=(-20.0, 0.0)))
    reader = Reader(corpus, lambda _: (1,), augmenter=augmenter, rows=len(corpus))
    batch, _ = reader.read(np.array([3, 3 + 12, 3]))
    assert batch.ids == ("one-00003",) * 3
    assert (batch.audio[0] == batch.audio[2]).all() and not (batch.audio[0] == batch.audio[1]).all()


def test_without_a_mix_the_plan_is_the_one_it_always_was(two_sets):
    recipe = load_recipe(write_recipe(two_sets), []).recipe
    corpus = open_corpus("train", [two_sets / "one/manifest.jsonl"], two_sets / "index")
    selection = select(corpus, 0.1, 30.0)
    expected = plan_epoch(corpus.seconds, selection.rows, Budget(3.0, None, 4), recipe.seed, 2)
    assert (planner(recipe, corpus, selection)(2).order == expected.order).all()


@pytest.mark.recipe
def test_a_mixed_run_says_what_it_mixes_and_scores_each_set(two_sets):
    recipe = write_recipe(two_sets, text=RECIPE)
    sets = "[" + ",".join(str(two_sets / name / "manifest.jsonl") for name in ("one", "two")) + "]"
    words = [f"data.train={sets}", f"data.dev={sets}", f"data.test={sets}", "data.mix.temperature=5", "train.steps=6"]
    done = attune("train", recipe, *words, "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert "one/manifest: 12 utterances" in done.stdout and "per epoch" in done.stdout
    scores = json.loads((two_sets / "run/scores.json").read_text())["test"]
    assert scores["sets"].keys() == {"one/manifest", "two/manifest"}
    for name, count in scores["counts"].items():
        assert sum(each["counts"][name] for each in scores["sets"].values()) == count
