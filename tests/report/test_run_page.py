"""The report as a person uses it, in a real browser: it filters, sorts, plays, links, and lets nothing in or out."""

import base64
import gzip
import json
import math
import re

import pytest

from attune.run import Run
from attune.run_report import save_report

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
    errors = tab.run("[...document.querySelectorAll('.row .cell.errors')].map((each) => parseInt(each.textContent))")
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


def test_keys_search_choose_and_play(tab, run):
    opened(tab, run, "#sort=-errors")
    tab.press("/")
    assert tab.run("document.activeElement.id") == "search"
    tab.type("onerror")
    tab.wait("document.querySelectorAll('.row').length === 2")
    tab.press("Escape")
    tab.wait("document.querySelectorAll('.row').length > 2")
    tab.run("document.querySelector('.scroller').focus()")
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


def test_the_rows_that_are_shown_become_a_manifest_that_attune_reads(tab, run, tmp_path):
    opened(tab, run)
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), eventsEnabled=True)
    tab.run("window.page.filter({flag: 'empty'}); document.getElementById('export').click()")
    tab.wait("true")
    for _ in range(200):
        if found := list(tmp_path.glob("*.jsonl")):
            break
        tab.run("new Promise((done) => setTimeout(done, 25))")
    from attune.corpora import open_manifest

    utterances = list(open_manifest(found[0], tmp_path / "index"))
    assert [each.id for each in utterances] == shown(tab)
    assert all(each.text.endswith("!") and each.audio.is_file() for each in utterances)


def test_a_printed_page_has_the_worst_utterances_and_no_buttons(tab, run):
    opened(tab, run)
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.run("getComputedStyle(document.querySelector('.printed')).display") == "block"
    assert tab.run("getComputedStyle(document.querySelector('.toolbar')).display") == "none"
    tab.call("Emulation.setEmulatedMedia", media="")


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
