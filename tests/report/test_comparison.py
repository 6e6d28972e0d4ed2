"""Comparisons: the same figures as each system's own scores, tests over pairs, and a page that works in a browser."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attune.analysis.compare import compare_opened, decode_systems, open_systems
from attune.errors import ConfigError, DataError
from attune.metrics import Prediction, Scores
from attune.report.compare_page import compare_page
from attune.report.comparison import System, compare, comparison_json, comparison_table, describe_change, slots
from attune.report.diffs import WordCounts, diff
from attune.report.score_comparison import ScoredRows, ScoredTrials, compare_rows, compare_trials
from attune.report.sets import ScoredSet, SpeakerTrial
from attune.scoring.accuracy import ACCURACY
from attune.scoring.bleu import BLEU, score_translations
from attune.scoring.detection import score_trials
from attune.scoring.diarization import DER
from attune.scoring.error_rates import WER, score_texts
from attune.scoring.signals import SI_SDR
from attune.scoring.significance import stretches
from attune.site import this_site
from attune.stages import drain
from attune.world import World

from browser import browser
from made_runs import make_run
from processes import attune
from untrained import write_model

pytestmark = pytest.mark.recipe

TEXTS = ["one two three", "four five six seven", "eight nine", "zero one two three four", "five six"] * 8


def system(name, change, texts=TEXTS):
    return System(name, [Prediction(str(row), change(row, text), text) for row, text in enumerate(texts)])


GOOD = system("good", lambda row, text: text if row % 4 else text.replace("e", "a"))
BAD = system("bad", lambda row, text: text.replace("o", "u") if row % 3 else f"so {text}")
GONE = system("gone", lambda row, text: None if row < 3 else text)


def plain(text):
    return text


def test_each_system_has_the_score_it_has_alone():
    found = compare("test", [BAD, GOOD], WER, plain)
    for each in found.systems:
        alone = score_texts(TEXTS, [prediction.value for prediction in each.system.predictions]).values["wer"]
        assert (each.score.value, each.score.low, each.score.high) == (alone.value, alone.low, alone.high)
    assert found.pairs[0].difference.value == pytest.approx(found.systems[1].score.value - found.systems[0].score.value)
    assert found.pairs[0].won + found.pairs[0].lost <= len(found.ids) and found.pairs[0].is_significant


def test_translations_are_compared_by_bleu():
    found = compare("test", [BAD, GOOD], BLEU, plain)
    for each in found.systems:
        values = [prediction.value for prediction in each.system.predictions]
        assert each.score.value == score_translations(TEXTS, values, found.ids).value
    pair = found.pairs[0]
    assert pair.difference.value == pytest.approx(found.systems[1].score.value - found.systems[0].score.value)
    assert pair.is_significant and 0 < pair.difference.low < pair.difference.high and [*pair.tests] == ["bootstrap"]
    assert not compare("test", [GOOD, GOOD], BLEU, plain).pairs[0].is_significant


def test_only_what_all_systems_have_is_compared():
    found = compare("test", [BAD, GONE], WER, plain)
    assert len(found.ids) == len(TEXTS) - 3 and found.left_out == 3


def test_several_systems_are_corrected_for_many_tests_and_one_that_is_the_same_differs_from_none():
    twin = System("twin", GOOD.predictions)
    found = compare("test", [BAD, GOOD, twin], WER, plain)
    assert len(found.pairs) == 3
    for pair in found.pairs:
        assert all(pair.adjusted[name] >= p for name, p in pair.tests.items())
    same = found.pairs[2]
    assert same.tests == {"bootstrap": 1.0, "mapsswe": 1.0, "mcnemar": 1.0} and not same.is_significant
    assert "Holm" in comparison_table(found) and json.dumps(comparison_json(found))


def test_different_references_are_refused_by_name():
    other = System("other", [Prediction("0", "a", "another text")])
    with pytest.raises(DataError, match="different references for '0'"):
        compare("test", [GOOD, other], WER, plain)
    with pytest.raises(DataError, match="no utterance"):
        compare("test", [GOOD, System("none", [Prediction("x", "a", "a")])], WER, plain)


def test_labels_are_compared_by_accuracy():
    first = System("a", [Prediction(str(row), "x" if row % 2 else "y", "x") for row in range(40)])
    second = System("b", [Prediction(str(row), "x" if row % 8 else "y", "x") for row in range(40)])
    pair = compare("test", [first, second], ACCURACY, plain).pairs[0]
    assert pair.difference.value == pytest.approx(37.5) and pair.difference.low > 0
    assert set(pair.tests) == {"bootstrap", "mcnemar"} and (pair.won, pair.lost) == (15, 0)


def test_stretches_are_those_of_the_alignments():
    reference = ["a", "b", "c", "d", "e", "f", "g"]
    one, other = (diff(reference, text.split(), WordCounts()) for text in ("a x c d e f g h", "a b c d e g"))
    assert list(stretches(slots(len(reference), one, other))) == [(1, 0), (1, 1)]


def test_a_change_is_one_line():
    line = describe_change(compare("old", [GOOD, BAD], WER, plain), "retained")
    assert line.startswith("retained: WER ") and line.endswith(": worse") and "p < 0.001" in line
    assert describe_change(compare("old", [GOOD, GOOD], WER, plain), "x").endswith("no significant change")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Two runs of one set, compared on the command line."""
    folder = tmp_path_factory.mktemp("compare")

    def worse(utterance, number):
        return "so " + utterance.text if number % 2 else utterance.text

    def better(utterance, number):
        return utterance.text if number % 5 else utterance.text.split()[0]

    make_run(folder, worse).folder.rename(folder / "a")
    make_run(folder, better).folder.rename(folder / "b")
    page = folder / "compare.html"
    done = attune("compare", str(folder / "a"), str(folder / "b"), "--out", str(page))
    assert done.returncode == 0, done.stderr
    return page, done.stdout


def test_the_page_of_a_comparison_shows_won_and_lost_utterances_side_by_side(pages):
    page, printed = pages
    assert "b − a" in printed and "MAPSSWE" in printed and str(page) in printed
    with browser() as tab:
        tab.look()
        tab.open(f"file://{page}")
        everything = tab.run("document.querySelectorAll('.row').length")
        tab.run("document.querySelector('[data-kind=won]').click()")
        won = tab.run("document.querySelectorAll('.row').length")
        tab.run("document.querySelector('[data-kind=lost]').click()")
        lost = tab.run("document.querySelectorAll('.row').length")
        assert 0 < won < everything and 0 < lost < everything and "show=lost" in tab.run("location.hash")
        assert tab.run("document.querySelectorAll('.detail .side .aligned').length") == 2
        tab.run("document.querySelector('.detail .pair').dispatchEvent(new PointerEvent('pointerenter'))")
        assert tab.run("document.querySelectorAll('.pair.pointed').length") == 2
        tab.run("document.querySelector('.scroller').focus()")
        tab.press("End")
        assert "id=" in tab.run("location.hash")
        assert len(tab.run("[...document.querySelectorAll('.printed b')].map((each) => each.textContent)")) == lost
        assert tab.problems == []
        assert [each for each in tab.requests if not each.startswith(("file:", "data:", "blob:"))] == []


def test_long_names_fit_on_a_phone(tmp_path):
    systems = [System(f"whisper-small-common-voice-lora-16-of-seed-{seed}", GOOD.predictions) for seed in range(3)]
    rows = ScoredSet("test", GOOD.predictions, Scores({}, {}), [None] * len(TEXTS))
    compare_page([compare("test", systems, WER, plain)], [rows], str(tmp_path), "").save(tmp_path / "c.html")
    with browser() as tab:
        tab.look(390)
        tab.open(f"file://{tmp_path}/c.html", "document.querySelector('#pair')")
        assert tab.run("document.documentElement.scrollWidth") == 390


def test_a_comparison_of_one_system_or_of_different_sets_says_what_to_do(pages, tmp_path):
    folder = pages[0].parent
    assert "two systems" in attune("compare", str(folder / "a")).stderr
    done = attune("compare", str(folder / "a"), str(folder / "b"), "--on", "dev")
    assert done.returncode == 2 and "attune evaluate" in done.stderr
    done = attune("compare", str(folder / "a"), str(folder / "nowhere"))
    assert done.returncode == 2 and "nowhere is not a run: it has no recipe.yaml" in done.stderr


def test_files_that_are_no_texts_or_trials_are_named(tmp_path):
    for value, reference in ((0.5, 0.7), ([0.1, 0.2], "anna"), ({"segments": []}, {"segments": []})):
        line = json.dumps({"id": "x", "value": value, "reference": reference})
        (tmp_path / "x.jsonl").write_text(line + "\n")
        with pytest.raises(DataError, match=r"x\.jsonl: .* Compare the runs"):
            open_systems([str(tmp_path / "x.jsonl")] * 2, None, "none", this_site())


def test_scores_of_utterances_are_compared_by_their_mean_in_the_direction_of_the_metric():
    values = np.random.default_rng(5).normal(10, 2, 60)
    rows = [Prediction(str(row), "x", None) for row in range(60)]
    scored = [ScoredRows(System(name, rows), own) for name, own in (("a", values), ("b", [*(values[1:] + 1), None]))]
    found = compare_rows("test", scored, SI_SDR)
    pair = found.pairs[0]
    assert len(found.ids) == 59 and found.left_out == 1
    assert pair.difference.value == pytest.approx((values[1:] + 1).mean() - values[:59].mean())
    twin = compare_rows("test", [ScoredRows(System(name, rows), values) for name in "ab"], SI_SDR).pairs[0]
    assert twin.difference == (0, 0, 0, 1) and twin.won == twin.lost == 0
    better = compare_rows("test", [scored[0], ScoredRows(System("c", rows), values + 0.5)], SI_SDR).pairs[0]
    assert (better.won, better.lost) == (60, 0) and better.difference.low == pytest.approx(0.5)
    worse = compare_rows("test", [scored[0], ScoredRows(System("c", rows), values + 0.5)], DER).pairs[0]
    assert (worse.won, worse.lost) == (0, 60) and "mean DER" in comparison_table(
        compare_rows("test", [scored[0], scored[0]], DER)
    )


def trials(noise, seed):
    """All pairs of 60 utterances of 12 speakers, scored with some noise."""
    random = np.random.default_rng(seed)
    pairs = [(one, other) for one in range(60) for other in range(one)]
    return [
        SpeakerTrial(f"u{one} u{other}", one % 12 == other % 12, (f"s{one % 12}", f"s{other % 12}"), score)
        for one, other in pairs
        if (score := float((one % 12 == other % 12) + random.normal(0, noise))) is not None
    ]


def test_trials_are_compared_by_eer_and_speakers_are_resampled():
    systems = [
        ScoredTrials(System(name, ()), trials(noise, seed)) for name, noise, seed in (("a", 0.6, 1), ("b", 0.3, 2))
    ]
    found = compare_trials("test", systems)
    for each, scored in zip(found.systems, systems, strict=True):
        alone = score_trials([one.score for one in scored.trials], [one.is_target for one in scored.trials], found.ids)
        assert each.score.value == pytest.approx(alone["eer"].value)
        assert 100 * each.wrong.mean() == pytest.approx(each.score.value, abs=1.5)  # at the threshold of the EER
    pair = found.pairs[0]
    assert pair.difference.high < 0 and pair.is_significant and pair.won > pair.lost
    assert pair.difference.value == pytest.approx(found.systems[1].score.value - found.systems[0].score.value)
    assert not compare_trials("test", [systems[0], systems[0]]).pairs[0].is_significant


def test_trials_with_other_answers_are_refused():
    own = trials(0.5, 1)
    other = [replace(own[0], is_target=not own[0].is_target), *own[1:]]
    with pytest.raises(DataError, match="a and b have different answers for the trial 'u1 u0'"):
        compare_trials("test", [ScoredTrials(System("a", ()), own), ScoredTrials(System("b", ()), other)])


@pytest.mark.parametrize(("is_target", "kind"), [(True, "one speaker"), (False, "two speakers")])
def test_trials_of_one_kind_have_no_eer_to_compare(is_target, kind):
    own = [each for each in trials(0.5, 1) if each.is_target is is_target]
    with pytest.raises(DataError, match=f"all of {kind}"):
        compare_trials("test", [ScoredTrials(System(name, ()), own) for name in "ab"])


def test_runs_of_any_task_and_files_of_trials_can_be_compared(tmp_path):
    task = "{name: verify_speaker}"
    for name, size in (("a", 1.0), ("b", 0.1)):
        make_run(tmp_path, lambda each, number, size=size: embedding(each, number, size), task=task).folder.rename(
            tmp_path / name
        )
    page = tmp_path / "compare.html"
    done = attune("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(page))
    assert done.returncode == 0 and "trials in common" in done.stdout and "EER" in done.stdout, done.stderr
    lines = [{"id": each.name, "value": each.score, "reference": each.is_target} for each in trials(0.5, 3)]
    for name in ("one.jsonl", "other.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = attune("compare", str(tmp_path / "one.jsonl"), str(tmp_path / "other.jsonl"), "--json")
    assert json.loads(done.stdout)["pairs"][0]["difference"] == 0
    with browser() as tab:
        tab.open(f"file://{page}")
        tab.run("document.querySelector('[data-kind=won]').click()")
        assert "trial" in tab.run("document.querySelector('[role=status]').textContent") and tab.problems == []


def decoded(folder, task, metric):
    """Two models that learned nothing, compared on what they make of a manifest."""
    given = (f"task={{name: {task}}}", f"train.keep_best=dev.{metric}")
    models = [str(write_model(folder / name, *given, f"seed={name}")) for name in "12"]
    manifest = str(folder / "1/dev/manifest.jsonl")
    return compare_opened(drain(decode_systems(models, manifest, this_site(), World.alone()), lambda event: None))[0]


def test_a_retained_set_of_speakers_is_compared_by_its_trials(tmp_path):
    found = decoded(tmp_path, "verify_speaker", "eer")
    assert found.label == "EER" and len(found.ids) == 15  # pairs of six utterances


def test_a_task_whose_utterances_cannot_be_compared_is_refused_before_it_is_decoded(tmp_path):
    with pytest.raises(ConfigError, match="--retained compares texts, labels and speakers; .* was trained to diarize"):
        decoded(tmp_path, "diarize", "der")


@pytest.mark.parametrize(("task", "label"), [("translate, label: text", "BLEU"), ("recognize_phonemes", "PER")])
def test_runs_are_compared_by_the_metric_of_their_task(task, label, tmp_path):
    for name, every in (("a", 3), ("b", 99)):
        run = make_run(
            tmp_path,
            lambda each, number, every=every: each.text if number % every else each.text[1:],
            task=f"{{name: {task}}}",
        )
        run.folder.rename(tmp_path / name)
    sources = [str(tmp_path / name) for name in "ab"]
    found, _ = compare_opened(open_systems(sources, None, "none", this_site()))
    assert found.label == label and found.pairs[0].won == 3


def embedding(utterance, number, noise):
    random = np.random.default_rng(number)
    own = np.random.default_rng(len(utterance.speaker) + ord(utterance.speaker[-1])).normal(size=8)
    return [float(each) for each in own + noise * random.normal(size=8)]
