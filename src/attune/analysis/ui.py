"""A local page of runs: a small server that reads run folders, and writes nothing but their reports.

Runs are found by listing the folder, and asked for by the name they have in that list: no part of a request is ever a
path. It listens on this machine alone; anywhere else, every request needs a token. Requests with another host's name
are refused, so that a page of the internet cannot reach it under a name of its own.
"""

import hmac
import json
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from attune.analysis.compare import compare_opened, open_systems
from attune.analysis.watch import RunView, Stamp, named_runs, run_stamp, view_run
from attune.errors import AttuneError, ConfigError, DataError
from attune.report.compare_page import compare_page
from attune.report.page import make_page
from attune.run import Run
from attune.run_report import save_report
from attune.site import Site

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}

PAGES = ("/", "/report", "/compare")

Query = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    status: int
    kind: str
    body: str


@dataclass(frozen=True, slots=True)
class RunsServer:
    """The runs of a folder as pages."""

    folder: Path
    site: Site
    command: str
    token: str = ""  # empty: none is needed
    views: dict[str, tuple[Stamp, RunView]] = field(default_factory=dict)  # as they were last read

    def answer(self, path: str, query: Query) -> Answer:
        """The page or the data at a path."""
        pages: dict[str, Callable[[Query], Answer]] = {
            "/": self._home,
            "/api/runs": self._runs,
            "/api/run": self._run,
            "/report": self._report,
            "/compare": self._compare,
        }
        if path not in pages:
            return _problem(404, f"No page {path}.")
        problem = self._problem_page if path in PAGES else _problem
        if self.token and not hmac.compare_digest(self.token.encode(), query.get("token", [""])[0].encode()):
            return _problem(403, "The token is missing or wrong. Open the address that `attune ui` printed.")
        try:
            return pages[path](query)
        except AttuneError as error:
            return problem(404, str(error))
        except OSError as error:  # a folder that nothing can be written to, or a run that was removed meanwhile
            return problem(500, str(error))

    def _problem_page(self, status: int, message: str) -> Answer:
        """What is wrong, for a person who followed a link."""
        home = f"/?token={self.token}" if self.token else "/"
        text = f'<p style="white-space: pre-line">{escape(message)}</p><p><a href="{home}">All runs</a></p>'
        return Answer(status, "text/html", f'<!doctype html><meta charset="utf-8"><title>attune</title>{text}')

    def _home(self, query: Query) -> Answer:
        data = {"folder": str(self.folder), "command": self.command, "token": self.token}
        return Answer(200, "text/html", make_page("Runs · attune", "ui.js", data, connects="'self'").html)

    def _runs(self, query: Query) -> Answer:
        views = [self._view(name, run) for name, run in self._found().items()]
        shown = [{**each.as_json(), "curves": [], "samples": []} for each in views]
        return Answer(200, "application/json", json.dumps(shown))

    def _view(self, name: str, run: Run) -> RunView:
        """A run as it is now; one that has not changed is not read again, unless time alone changes it."""
        stamp = run_stamp(run)
        known = self.views.get(name)
        if known and known[0] == stamp and not known[1].state.startswith("running"):
            return known[1]
        view = view_run(run, name)
        self.views[name] = (stamp, view)
        return view

    def _run(self, query: Query) -> Answer:
        name, run = self._named(query)[0]
        return Answer(200, "application/json", json.dumps(view_run(run, name).as_json()))

    def _report(self, query: Query) -> Answer:
        """The report of a run, made anew where its scores or its log are newer."""
        _, run = self._named(query)[0]
        made = run.folder / "report.html"
        sources = [path for name in ("scores.json", "log.jsonl") if (path := run.folder / name).exists()]
        if not made.exists() or any(path.stat().st_mtime > made.stat().st_mtime for path in sources):
            save_report(run)
        return Answer(200, "text/html", made.read_text(encoding="utf-8"))

    def _compare(self, query: Query) -> Answer:
        runs = [str(run.folder) for _, run in self._named(query)]
        if len(runs) < 2:
            raise ConfigError("A comparison needs two runs or more.")
        comparison, scored = compare_opened(open_systems(runs, None, "none", self.site))
        page = compare_page([comparison], [scored], str(self.folder), f"attune compare {' '.join(runs)}")
        return Answer(200, "text/html", page.html)

    def _found(self) -> dict[str, Run]:
        """Runs by the name that they have below the folder."""
        return named_runs(self.folder) if self.folder.is_dir() else {}

    def _named(self, query: Query) -> list[tuple[str, Run]]:
        found, names = self._found(), query.get("run", ())
        unknown = [name for name in names if name not in found]
        if unknown or not names:
            raise DataError(f"There is no run {', '.join(unknown) or 'of no name'} in {self.folder}.")
        return [(name, found[name]) for name in names]


def _problem(status: int, message: str) -> Answer:
    return Answer(status, "application/json", json.dumps({"error": message}))


def make_token(host: str) -> str:
    """None for this machine alone; anywhere else, one that nobody guesses."""
    return "" if host in LOOPBACK else secrets.token_urlsafe(24)


def listen(server: RunsServer, host: str, port: int) -> ThreadingHTTPServer:
    """A server that is ready to serve; port 0 takes any that is free."""
    is_local = host in LOOPBACK

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_GET(self) -> None:
            """Answer with a page or data."""
            name = (self.headers.get("Host") or "").rpartition(":")[0].strip("[]") or self.headers.get("Host", "")
            asked = urlsplit(self.path)
            if is_local and name not in LOOPBACK:
                found = _problem(403, "This server accepts requests to localhost only.")
            else:
                found = server.answer(asked.path, parse_qs(asked.query))
            body = found.body.encode()
            self.send_response(found.status)
            for header, value in {**HEADERS, "Content-Type": f"{found.kind}; charset=utf-8"}.items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: a page asks every two seconds."""

    try:
        opened = _Listener((host, port), Handler)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. Choose another --port."
        ) from error
    return opened


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing where a tab was closed before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
