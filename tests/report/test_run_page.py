"""The report as a person uses it, in a real browser: it filters, sorts, plays, links, and lets nothing in or out."""

import base64
import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from attune.analysis.compare import open_systems
from attune.corpora import open_manifest
from attune.metrics import Prediction, Scores
from attune.report.page import packed
from attune.report.sets import ScoredSet, set_data
from attune.run import Run
from attune.run_report import make_report, save_report
from attune.scoring.accuracy import ACCURACY
from attune.scoring.bootstrap import mean
from attune.scoring.signals import SI_SDR
from attune.site import this_site
from attune.types import Utterance

from browser import browser
from made_runs import make_run

EVIL = "</script><img src=x onerror=\"document.title='owned'\">"


def wrong_now_and_then(utterance, number):
    """A hypothesis with errors of every kind, some of them hostile."""
    words = utterance.text.split()
    match number % 6:
        case 0:
            return utterance.text
        case 1:
            return " ".join(["bee", *words[1:]])
        case 2:
            return ""
        case 3:
            return " ".join([*words, *["so"] * 12])
        case 4:
            return f"{words[0]} {EVIL}"
        case _:
            return None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("report"), wrong_now_and_then, change=as_written)


def as_written(row):
    return {**row, "text": f"{row['text'].capitalize()}!"}


@pytest.fixture(scope="module")
def tab():
    with browser() as opened:
        opened.look()
        yield opened


def data_of(html):
    return json.loads(gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', html)[1])))


def opened(tab, run, after=""):
    """The run's report in the browser, with nothing of an earlier page in the way."""
    path = run.folder / "report.html"
    if not path.exists():
        save_report(run)
    tab.open("about:blank", "true")
    tab.problems.clear()
    tab.requests.clear()
    tab.open(f"file://{path}{after}")


def shown(tab):
    return tab.run("[...document.querySelectorAll('.row .cell.id .id')].map((each) => each.firstChild.textContent)")


def test_the_page_agrees_with_the_scores_of_the_run(run):
    made = data_of(save_report(run).html)["runs"][0]["sets"][0]
    counts = run.scores()["test"]["counts"]
    for name in ("insertions", "deletions", "substitutions"):
        assert sum(made[name]) == counts[name]
    assert sum(made["words"]) == counts["num_scored_tokens"]
    assert sum(seen - right for _, seen, right in made["vocabulary"]) == counts["deletions"] + counts["substitutions"]


def test_it_opens_without_an_error_or_a_request_and_hostile_texts_stay_texts(tab, run):
    opened(tab, run)
    tab.wait("document.querySelector('.row')")
    assert tab.problems == []
    assert [each for each in tab.requests if not each.startswith(("file:///", "data:", "blob:"))] == []
    assert len([each for each in tab.requests if each.startswith("file:")]) == 1
    assert tab.run("document.title").endswith("attune report")
    assert tab.run("document.images.length") == 0
    tab.run("window.page.filter({q: 'onerror'})")
    assert "onerror" in tab.run("document.querySelector('.row').textContent")
    assert tab.run("document.images.length") == 0 and tab.run("document.title") != "owned"


def test_it_sorts_by_every_column(tab, run):
    opened(tab, run)
    ids = shown(tab)
    press = "document.querySelector('.heads .cell.%s button').click()"
    tab.run(press % "id")
    assert shown(tab) == sorted(ids)
    tab.run(press % "id")
    assert shown(tab) == sorted(ids, reverse=True)
    tab.run(press % "errors")
    told = tab.run("[...document.querySelectorAll('.row .cell.errors')].map((each) => each.textContent)")
    assert told[-2:] == ["–", "–"]  # no predictions
    errors = [int(each.split()[0]) for each in told[:-2]]
    assert errors == sorted(errors, reverse=True) and errors[0] > errors[-1]
    assert tab.run("document.querySelector('.heads .cell.errors').getAttribute('aria-sort')") == "descending"


def test_it_filters_by_text_flag_error_and_slice_and_the_address_keeps_it(tab, run):
    opened(tab, run)
    everything = len(shown(tab))
    tab.run("document.querySelector('.chip.empty').click()")
    assert len(shown(tab)) == 2 < everything
    address = tab.run("location.hash")
    assert "flag=empty" in address
    opened(tab, run, address)
    assert len(shown(tab)) == 2
    tab.run("window.page.reset(); window.page.render()")
    tab.run("document.querySelector('#errors .pick').click()")
    assert 0 < len(shown(tab)) < everything and "errors=" in tab.run("location.hash")
    tab.run("window.page.reset(); window.page.render()")
    tab.run("[...document.querySelectorAll('.tab')].find((each) => each.textContent === 'speaker').click()")
    tab.run("document.querySelector('#slices .pick').click()")
    assert 0 < len(shown(tab)) < everything and "by=speaker" in tab.run("location.hash")


def test_a_link_that_is_opened_in_the_page_shows_what_it_says_and_no_filter_of_before(tab, run):
    opened(tab, run, "#q=onerror&flag=runaway")
    everything = tab.run("window.page.set.ids.length")
    tab.run("location.hash = 'sort=id'")
    tab.wait(f"document.querySelectorAll('.row').length === {everything}", 5)
    assert tab.run("document.querySelector('#search').value") == "" and shown(tab) == sorted(shown(tab))


@pytest.mark.parametrize(
    "address", ["#by=accent&group=x", "#by=speaker&group=nobody", "#flag=x", "#set=x&run=9&sort=x"]
)
def test_a_link_to_what_is_not_there_any_more_opens_the_page(address, tab, run):
    opened(tab, run, address)
    tab.wait("document.querySelector('[role=status]')")
    rows = tab.run("window.page.browser.table.rows.length")
    assert rows == (tab.run("window.page.set.ids.length") if "set" in address else 0) and tab.problems == []
    tab.run("[...document.querySelectorAll('button')].find((each) => each.textContent === 'clear').click()")
    assert shown(tab)


def test_keys_search_choose_and_play(tab, run):
    opened(tab, run, "#sort=-errors")
    tab.press("/")
    assert tab.run("document.activeElement.id") == "search"
    tab.type("onerror")
    tab.wait("document.querySelectorAll('.row').length === 2")
    tab.press("ArrowDown")
    assert tab.run("document.activeElement === document.querySelector('.scroller')")
    tab.press("Escape")
    tab.wait("document.querySelectorAll('.row').length > 2")
    first = tab.run("document.querySelector('.detail h3').firstChild.textContent")
    tab.press("ArrowDown")
    second = tab.run("document.querySelector('.detail h3').firstChild.textContent")
    assert first != second and f"id={second}" in tab.run("location.hash")
    tab.press("Enter")
    tab.wait("document.querySelector('.detail audio').currentTime > 0")
    assert tab.problems == []


def test_both_themes_are_readable_and_a_key_switches(tab, run):
    opened(tab, run)
    paper = "getComputedStyle(document.body).backgroundColor"
    tab.look(dark=True)
    dark = tab.run(paper)
    tab.look(dark=False)
    light = tab.run(paper)
    assert dark != light
    tab.run("document.getElementById('page').focus()")
    tab.press("t")
    assert tab.run(paper) == dark


def exported(tab, folder):
    """What is saved by "export as manifest", as attune reads it."""
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), eventsEnabled=True)
    tab.run("document.getElementById('export').click()")
    for _ in range(200):
        if found := list(folder.glob("*.jsonl")):
            break
        tab.run("new Promise((done) => setTimeout(done, 25))")
    return list(open_manifest(found[0], folder / "index"))


def test_a_recording_of_which_the_page_has_the_beginning_says_so(tab, tmp_path):
    run = make_run(tmp_path, lambda utterance, number: utterance.text, utterances=1)
    made = tmp_path / "data/manifest.jsonl"
    row = json.loads(made.read_text())
    soundfile.write(tmp_path / "long.wav", np.full(62 * 8000, 0.1), 8000)
    made.write_text(json.dumps({**row, "audio": str(tmp_path / "long.wav"), "seconds": 62.0}) + "\n")
    opened(tab, run)
    assert "The first 60 s of 62 s." in tab.run("document.querySelector('.detail .player').textContent")


def test_words_run_in_the_direction_of_their_script_at_any_width(tab, tmp_path):
    texts = ["שלום עולם טוב מאוד", "one two three four"]
    run = make_run(
        tmp_path,
        lambda utterance, number: utterance.text.rsplit(" ", 1)[0],
        change=lambda row: {**row, "text": texts[int(row["id"]) % 2]},
    )
    opened(tab, run, "#sort=id")
    places = "[...document.querySelectorAll('.row')].slice(0, 2).map((row) => [...row.querySelectorAll('.wanted')].%s)"
    for width in (1280, 390):
        tab.look(width)
        tab.wait(f"document.documentElement.clientWidth === {width}")
        hebrew, english = tab.run(places % "map((each) => each.getBoundingClientRect().left)")
        assert hebrew == sorted(hebrew, reverse=True) and english == sorted(english)
        assert tab.run("document.querySelector('.row .cell.text').clientWidth") > 80
        first = tab.run("document.querySelector('.row .cell.text .wanted').getBoundingClientRect().right")
        assert first <= tab.run("document.querySelector('.row .cell.text').getBoundingClientRect().right")
    tab.look()


def test_the_rows_that_are_shown_become_a_manifest_that_attune_reads(tab, run, tmp_path):
    opened(tab, run)
    tab.run("window.page.filter({flag: 'empty'})")
    utterances = exported(tab, tmp_path)
    assert [each.id for each in utterances] == shown(tab)
    assert all(each.text.endswith("!") and each.audio.is_file() for each in utterances)
    assert all(each.labels["register"] in ("low", "middle", "high") for each in utterances)


@pytest.mark.parametrize(
    ("task", "value"), [("{name: classify, label: register}", "low"), ("{name: diarize}", {"segments": []})]
)
def test_rows_of_any_task_are_exported_with_what_it_learns_from(task, value, tab, tmp_path):
    turns = [{"start": 0.1, "end": 0.4, "speaker": "a"}]
    run = make_run(tmp_path, lambda utterance, number: value, task, change=lambda row: {**row, "segments": turns})
    opened(tab, run)
    (tmp_path / "down").mkdir()
    before = {each.id: each for each in open_manifest(tmp_path / "data/manifest.jsonl", tmp_path / "index")}
    for each in exported(tab, tmp_path / "down"):
        own = before[each.id]
        assert own.labels.items() <= each.labels.items() and own.segments == each.segments and own.text == each.text


def test_an_utterance_without_a_prediction_is_neither_right_nor_wrong_and_says_so(tab, run, tmp_path):
    opened(tab, run)
    tab.run("window.page.filter({flag: 'absent'})")
    assert len(shown(tab)) == 2
    assert "no prediction" in tab.run("document.querySelector('.row .cell.text').textContent")
    assert tab.run("document.querySelector('.row .cell.rate').textContent") == "–"
    assert "no prediction" in tab.run("document.querySelector('.detail').textContent")
    assert "0 errors" not in tab.run("document.querySelector('.detail').textContent")
    exported(tab, tmp_path)
    assert "hypothesis" not in next(tmp_path.glob("*.jsonl")).read_text()
    tab.run("window.page.filter({flag: '', to: '0'})")
    assert len(shown(tab)) == 2  # the right ones alone


def test_runs_of_different_tasks_share_a_page(tab, run, tmp_path):
    labels = make_run(tmp_path, lambda utterance, number: "low", "{name: classify, label: register}")
    make_report([run, labels], this_site(), tmp_path).save(tmp_path / "both.html")
    tab.open("about:blank", "true")
    tab.problems.clear()
    tab.open(f"file://{tmp_path}/both.html")
    for place in (1, 0, 1):
        tab.run(
            f"runs = document.getElementById('run'), runs.value = '{place}', runs.dispatchEvent(new Event('change'))"
        )
        tab.run("new Promise((done) => setTimeout(done, 100))")  # what is observed of the former table comes late
        assert len(shown(tab)) > 0 and tab.problems == []


def test_a_run_in_the_current_folder_has_its_name(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.folder)
    assert data_of(make_report([Run(Path())], this_site(), tmp_path).html)["runs"][0]["name"] == run.folder.name
    assert [each.name for each in open_systems([".", "../run"], None, "none", this_site())] == [".", "../run"]


def test_every_button_has_a_name(tab, run):
    opened(tab, run)
    unnamed = "!each.getAttribute('aria-label') && !each.textContent && !each.labels?.length"
    assert (
        tab.run(f"[...document.querySelectorAll('button, a, input, select')].filter((each) => {unnamed}).length") == 0
    )


def test_a_slice_counts_what_was_scored():
    rows = [Prediction(str(number), value, "low") for number, value in enumerate(["low", None, "high", None, None])]
    speakers = [Utterance(each.id, 1.0, speaker=name) for each, name in zip(rows, "aabbc", strict=True)]
    made = set_data(ScoredSet("test", rows, Scores({"accuracy": mean(ACCURACY, [1.0])}, {}), speakers))
    assert [each[:3] for each in made["slices"]["speaker"]] == [["a", 1, 100.0], ["b", 1, 0.0]]


def test_the_links_of_the_head_lead_to_what_the_page_has(tab, tmp_path):
    opened(tab, make_run(tmp_path, lambda utterance, number: [1.0, number % 3], "{name: verify_speaker}"))
    links = tab.run("[...document.querySelectorAll('nav a')].map((each) => each.hash.slice(1))")
    assert "utterances" in links and "slices" not in links
    assert tab.run(f"{links}.every((id) => document.getElementById(id))")


def test_a_printed_page_of_any_task_has_utterances(tab, tmp_path):
    opened(tab, make_run(tmp_path, lambda utterance, number: "low", "{name: classify, label: register}"))
    assert "→ low" in tab.run("document.querySelector('.printed').textContent")


def test_a_printed_page_has_the_worst_utterances_and_no_buttons(tab, run):
    opened(tab, run)
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.run("getComputedStyle(document.querySelector('.printed')).display") == "block"
    assert tab.run("getComputedStyle(document.querySelector('.toolbar')).display") == "none"
    tab.call("Emulation.setEmulatedMedia", media="")


def test_long_words_are_printed_within_the_page(tab, tmp_path):
    run = make_run(tmp_path, lambda utterance, number: "donaudampfschifffahrt" * 20 if number == 3 else utterance.text)
    opened(tab, run)
    tab.look(width=700, height=900)
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.run("document.documentElement.scrollWidth") <= 700
    tab.call("Emulation.setEmulatedMedia", media="")
    tab.look()


def test_a_confusion_of_labels_with_arrows_shows_its_utterances(tab, tmp_path):
    run = make_run(
        tmp_path,
        lambda utterance, number: "b → c",
        "{name: classify, label: way}",
        change=lambda row: {**row, "labels": {"way": "a → b" if int(row["id"]) % 3 else "b → c"}},
    )
    opened(tab, run)
    tab.run("document.querySelector('.matrix td.wrong button').click()")
    assert len(shown(tab)) == 8


def test_a_page_is_printed_dark_on_light_in_either_theme(tab, run):
    opened(tab, run)
    names = ("--paper", "--ink", "--substitution", "--wash-deletion", "--accent")
    colors = f"{list(names)}.map((name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    found = []
    for theme in ("", "light", "dark"):
        for system in ("light", "dark"):
            tab.run(f"document.documentElement.dataset.theme = '{theme}'")
            scheme = {"name": "prefers-color-scheme", "value": system}
            tab.call("Emulation.setEmulatedMedia", media="print", features=[scheme])
            found.append(tab.run(colors))
    tab.call("Emulation.setEmulatedMedia", media="")
    tab.look()
    assert found[0][:2] == ["#fff", "#000"] and found == [found[0]] * 6


def test_labels_get_a_confusion_matrix(tab, tmp_path):
    def guess(utterance, number):
        return "low" if number % 3 else utterance.labels["register"]

    run = make_run(tmp_path, guess, "{name: classify, label: register}")
    opened(tab, run)
    assert tab.run("document.querySelectorAll('.matrix tbody tr').length") == 3
    counts = data_of(save_report(run).html)["runs"][0]["sets"][0]["matrix"]["counts"]
    assert sum(row[place] for place, row in enumerate(counts)) == run.scores()["test"]["counts"]["num_correct"]
    tab.run("document.querySelector('.matrix td.wrong button').click()")
    assert tab.run("document.querySelectorAll('.row').length") > 0 and tab.problems == []


def test_speaker_verification_gets_a_det_curve(tab, tmp_path):
    def vector(utterance, number):
        angle = {"bass": 0.0, "alto": 1.2, "soprano": 2.4}[utterance.speaker] + 0.3 * (number % 5)
        return [math.cos(angle), math.sin(angle)]

    run = make_run(tmp_path, vector, "{name: verify_speaker}")
    opened(tab, run)
    made = data_of(save_report(run).html)["runs"][0]["sets"][0]["trials"]
    assert made["eer"] == pytest.approx(run.scores()["test"]["scores"]["eer"]["value"])
    assert tab.run("document.querySelector('.det polyline') !== null") and tab.problems == []


@pytest.mark.parametrize("count", [1, 2, 12])
def test_speaker_verification_with_trials_of_one_kind_has_a_report_without_a_curve(count, tab, tmp_path):
    """Too few utterances for any trial, or none of two that are of one speaker."""
    run = make_run(
        tmp_path,
        lambda utterance, number: [1.0, float(number)] if number < count else None,
        "{name: verify_speaker}",
        change=lambda row: {**row, "speaker": row["id"]},
    )
    made = data_of(save_report(run).html)["runs"][0]["sets"][0]
    assert made["trials"] is None and len(made["ids"]) == 12 and "value" not in made["metrics"][0]
    opened(tab, run)
    assert tab.run("document.querySelectorAll('.metric .bar').length") == 0 and tab.problems == []


def test_a_perfect_estimate_has_a_place_in_the_table(tmp_path):
    rows = [Prediction(name, None, None, file=f"test/{name}.wav") for name in "ab"]
    scores = Scores({"si_sdr": mean(SI_SDR, [math.inf, 3.0])}, {})
    made = set_data(ScoredSet("test", rows, scores, [None, None], values=[math.inf, 3.0]))
    assert made["values"] == [None, 3.0] and packed(made)


def test_diarization_gets_a_time_axis(tab, tmp_path):
    def with_turns(row):
        turns = [(0.1, 0.4, "a"), (0.3, 0.6, "b")]
        return {**row, "segments": [dict(zip(("start", "end", "speaker"), each, strict=True)) for each in turns]}

    found = [{"start": 0.1, "end": 0.5, "speaker": "0"}]
    value = {"segments": found, "seconds_per_frame": 0.1, "activity": ["9 90 90 90 90 9"]}
    run = make_run(tmp_path, lambda utterance, number: value, "{name: diarize}", change=with_turns)
    opened(tab, run)
    assert tab.run("document.querySelectorAll('.timeline .segment').length") == 3
    assert "DER" in tab.run("document.querySelector('.heads').textContent") and tab.problems == []


def test_long_names_of_speakers_fit_the_time_axis(tab, tmp_path):
    names = ("ES2011a_speaker_FEE041", "ES2011a_speaker_MEE042")
    turns = [{"start": 0.1, "end": 0.4, "speaker": name} for name in names]
    run = make_run(
        tmp_path,
        lambda utterance, number: {"segments": turns, "seconds_per_frame": 0.1, "activity": ["9"] * 2},
        "{name: diarize}",
        change=lambda row: {**row, "segments": turns},
    )
    opened(tab, run)
    tab.wait("document.querySelector('.timeline text')")
    assert tab.run("[...document.querySelectorAll('.timeline text')].every((each) => each.getBBox().x >= 0)")
    assert "FEE041" in tab.run("document.querySelector('.timeline text').textContent")
    assert tab.run("document.querySelector('.timeline text title').textContent") == names[0]


def test_a_report_without_its_manifest_says_so_and_has_the_rest(tmp_path):
    run = make_run(tmp_path, wrong_now_and_then)
    (tmp_path / "data/manifest.jsonl").unlink()
    made = data_of(save_report(run).html)["runs"][0]
    assert "manifest" in made["notes"][0]
    assert sum(made["sets"][0]["words"]) == run.scores()["test"]["counts"]["num_scored_tokens"]


def test_a_run_that_has_only_begun_has_a_report_too(tab, tmp_path):
    run = make_run(tmp_path, wrong_now_and_then)
    (run.folder / "scores.json").unlink()
    opened(tab, Run(run.folder))
    assert tab.run("document.querySelectorAll('.charts figure').length") > 2 and tab.problems == []
