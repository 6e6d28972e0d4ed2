"""The local page of runs: it lists, follows, opens reports and comparisons, and lets nobody else in."""

import http.client
import json
import socket
import struct
import threading
import time
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from attune.analysis.ui import RunsServer, listen, make_token
from attune.cli import main
from attune.site import this_site

from browser import browser
from made_runs import make_run

pytestmark = pytest.mark.recipe

RUN_LINKS = "[...document.querySelectorAll('tbody td:first-child a')].map((each) => each.textContent)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("ui")
    make_run(place, lambda utterance, number: utterance.text).folder.rename(place / "a")
    make_run(place, lambda utterance, number: "so " + utterance.text).folder.rename(place / "b <i>")
    return place


@contextmanager
def served(folder, token="", host="127.0.0.1"):
    opened = listen(RunsServer(folder, this_site(), "attune ui runs", token), host, 0)
    threading.Thread(target=opened.serve_forever, daemon=True).start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{opened.server_address[1]}"
    finally:
        opened.shutdown()
        opened.server_close()


def status_of(address):
    try:
        with urlopen(address) as answer:
            return answer.status
    except HTTPError as error:
        error.close()
        return error.code


def test_runs_are_data_for_programs_and_unknown_names_are_refused(folder):
    with served(folder) as address:
        with urlopen(f"{address}/api/runs") as answer:
            assert {each["name"] for each in json.load(answer)} == {"a", "b <i>"}
        for bad in ("/api/run?run=../../etc", "/api/run?run=/etc/passwd", "/api/run", "/../../etc/passwd", "/files/x"):
            assert status_of(address + bad) == 404


def test_another_hosts_name_is_refused(folder):
    with served(folder) as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"))
        connection.request("GET", "/api/runs", headers={"Host": "evil.example"})
        assert connection.getresponse().status == 403
        connection.close()


def test_it_listens_on_ipv6_too(folder):
    with served(folder, host="::1") as address:
        assert status_of(f"{address}/api/runs") == 200


def test_a_page_that_is_closed_early_prints_nothing(folder, capfd):
    with served(folder) as address:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as gone:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # with a reset
                gone.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status_of(address) == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_report_that_cannot_be_written_is_an_answer(folder, monkeypatch):
    def full(run):
        raise OSError(30, "Read-only file system", "report.html")

    monkeypatch.setattr("attune.analysis.ui.save_report", full)
    (folder / "a/report.html").unlink(missing_ok=True)
    with served(folder) as address, pytest.raises(HTTPError) as refused:
        urlopen(f"{address}/report?run=a")
    assert refused.value.code == 500 and "Read-only" in refused.value.read().decode()


@pytest.mark.parametrize("verb", ["ui", "serve"])
def test_a_port_that_cannot_be_is_a_usage_error(verb, folder, capsys):
    with pytest.raises(SystemExit):
        main([verb, str(folder), "--port", "99999"])
    assert "99999 is not between 0 and 65535" in capsys.readouterr().err


def test_elsewhere_than_on_this_machine_a_token_is_needed(folder):
    assert make_token("127.0.0.1") == "" and len(make_token("0.0.0.0")) >= 24
    with served(folder, token="secret-token") as address:
        assert status_of(f"{address}/api/runs") == 403
        assert status_of(f"{address}/api/runs?token=wrong") == 403
        assert status_of(f"{address}/api/runs?token=secret-token") == 200


def test_the_page_lists_runs_follows_one_and_opens_reports_and_comparisons(folder):
    with served(folder) as address, browser() as tab:
        tab.look()
        tab.open(address, "document.querySelectorAll('tbody tr').length === 2")
        assert "attune watch" in tab.run("document.querySelector('.command code').textContent")
        tab.run("document.querySelectorAll('input[type=checkbox]').forEach((each) => each.click())")
        tab.wait("[...document.querySelectorAll('a')].some((each) => each.textContent.startsWith('Compare'))")
        assert "attune compare" in tab.run("document.querySelector('.command code').textContent")
        tab.run("[...document.querySelectorAll('a')].find((each) => each.textContent.startsWith('Compare')).click()")
        tab.wait("document.querySelector('h1')?.textContent.includes('vs.')")
        tab.open(f"{address}/#run=a", "document.querySelectorAll('.charts figure').length > 2")
        with (folder / "a/log.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time(), "event": "step", "step": 21, "loss": 0.125}) + "\n")
        tab.wait("document.querySelector('.readout').textContent.startsWith('0.125')")
        tab.run("[...document.querySelectorAll('a')].find((each) => each.textContent === 'Open the report').click()")
        tab.wait("document.querySelectorAll('.row').length > 2")
        assert tab.problems == []
        assert {each.split("/")[2] for each in tab.requests if each.startswith("http")} == {address.split("/")[2]}


def test_order_and_focus_stay_while_runs_are_trained(folder):
    with served(folder) as address, browser() as tab:
        tab.look()
        tab.open(address, "document.querySelectorAll('tbody tr').length === 2")
        tab.run("document.querySelector('th button').click(); document.querySelector('th button').click()")
        before = tab.run(RUN_LINKS)
        tab.run("[...document.querySelectorAll('tbody a')].find((each) => each.textContent === 'a').focus()")
        focused = tab.run("document.activeElement.href")
        with (folder / "a/log.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time() + 5, "event": "step", "step": 22, "loss": 0.062}) + "\n")
        tab.wait("document.body.textContent.includes('0.062')")
        assert before == ["b <i>", "a"] == tab.run(RUN_LINKS)
        assert focused == tab.run("document.activeElement.href")
        assert tab.run("document.querySelector('th').getAttribute('aria-sort')") == "descending"


def test_what_cannot_be_shown_is_a_page_with_the_way_back(folder, tmp_path):
    with served(folder, token="secret") as address, browser() as tab:
        tab.open(f"{address}/report?run=gone&token=secret", "document.querySelector('p')")
        assert "There is no run gone" in tab.run("document.body.textContent")
        assert tab.run("document.querySelector('a').getAttribute('href')") == "/?token=secret"
        tab.open(f"{address}/compare?run=%3Cb%3E&token=secret", "document.querySelector('p')")
        assert tab.run("document.querySelector('b')") is None


def test_a_run_that_is_not_trained_any_more_is_read_once(folder):
    server = RunsServer(folder, this_site(), "attune ui runs")
    first = json.loads(server.answer("/api/runs", {}).body)
    began = time.perf_counter()
    for _ in range(100):
        assert json.loads(server.answer("/api/runs", {}).body) == first
    assert time.perf_counter() - began < 1.0  # of two runs, each a millisecond and not ten
    with (folder / "a/log.jsonl").open("a") as file:
        file.write(json.dumps({"time": time.time(), "event": "step", "step": 30, "loss": 0.5}) + "\n")
    assert max(each["step"] for each in json.loads(server.answer("/api/runs", {}).body)) == 30
