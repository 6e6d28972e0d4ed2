"""As much of the Hub's HTTP API as the real client needs: repositories, commits, LFS, trees and files, with faults.

It is ours, so it proves what the client does, not what the Hub does.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from servers.web import Fault, Quiet, Site, refuse, send_file, serving

LFS_FROM = 2000  # bytes; the Hub goes by kind and size


@dataclass(frozen=True)
class Blob:
    content: bytes
    is_lfs: bool

    @property
    def git(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass
class Repo:
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit_of(self, revision: str) -> str | None:
        found = self.branches.get(revision, revision)
        return found if found in self.commits else None

    def commit(self, branch: str, files: dict[str, Blob]) -> str:
        state = json.dumps([len(self.commits), sorted((name, blob.sha256) for name, blob in files.items())])
        sha = hashlib.sha1(state.encode()).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        return sha


@dataclass
class Hub:
    """Repositories by kind and name, and a record of what was asked."""

    token: str | None = None  # without it, nothing is found
    gated: str | None = None  # without this token, everything is listed and nothing is sent
    repos: dict[str, Repo] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)  # of coming downloads
    refusals: list[int] = field(default_factory=list)  # of coming questions
    asked: list[str] = field(default_factory=list)
    site: Site = field(default_factory=Site)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, name: str, files: dict[str, bytes], kind: str = "models", branch: str = "main") -> str:
        """A commit as if someone had pushed it."""
        blobs = {path: Blob(content, len(content) >= LFS_FROM) for path, content in files.items()}
        return self.repos.setdefault(f"{kind}/{name}", Repo()).commit(branch, blobs)

    def downloads(self) -> list[str]:
        return [path for path in self.asked if "/resolve/" in path]


@contextmanager
def serve_hub(hub: Hub) -> Iterator[str]:
    """The hub's address."""

    class Handler(Quiet):
        def do_GET(self):
            _answer(self, hub)

        do_HEAD = do_POST = do_PUT = do_GET

    with serving(Handler) as url:
        try:
            yield url
        finally:
            hub.site.released.set()


def _answer(request: Quiet, hub: Hub) -> None:
    body = _read(request)
    path = unquote(urlsplit(request.path).path)
    with hub.lock:
        hub.asked.append(f"{request.command} {path}")
        refusal = hub.refusals.pop(0) if hub.refusals and "/resolve/" not in path else None
    if refusal:
        return refuse(request, refusal, {})
    if hub.token and request.headers["Authorization"] != f"Bearer {hub.token}" and "/lfs-upload/" not in path:
        return refuse(request, 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
    for pattern, answer in ROUTES:
        found = re.fullmatch(pattern, path)
        if found:
            return answer(request, hub, body, **found.groupdict())
    refuse(request, 404, {})


def _read(request: Quiet) -> bytes:
    if request.headers.get("Transfer-Encoding") == "chunked":
        parts = []
        while size := int(request.rfile.readline(), 16):
            parts.append(request.rfile.read(size))
            request.rfile.readline()
        request.rfile.readline()
        return b"".join(parts)
    return request.rfile.read(int(request.headers["Content-Length"] or 0))


def _send(request: Quiet, value: Any, status: int = 200) -> None:
    body = json.dumps(value).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)


def _create(request, hub, body):
    asked = json.loads(body)
    kind = f"{asked.get('type', 'model')}s"
    name = f"{asked['organization']}/{asked['name']}"
    place = name if kind == "models" else f"{kind}/{name}"
    if f"{kind}/{name}" in hub.repos:
        return _send(request, {"error": "exists", "url": f"{_url(request)}/{place}"}, 409)
    repo = hub.repos.setdefault(f"{kind}/{name}", Repo())
    repo.commit("main", {".gitattributes": Blob(b"*.safetensors filter=lfs\n", False)})
    _send(request, {"url": f"{_url(request)}/{place}", "name": name, "id": name})


def _url(request) -> str:
    return f"http://{request.headers['Host']}"


def _validate(request, hub, body):
    content = json.loads(body)["content"]
    found = re.match(r"---\n(.*?)\n---\n", content, re.DOTALL)
    try:
        values = yaml.safe_load(found[1]) if found else {}
        errors = [] if isinstance(values, dict) else [{"message": "not a mapping"}]
    except yaml.YAMLError as error:
        errors = [{"message": str(error)}]
    _send(request, {"errors": errors, "warnings": []}, 400 if errors else 200)


def _found(request, hub, kind, name, revision) -> tuple[str, dict[str, Blob]] | None:
    repo = hub.repos.get(f"{kind}/{name}")
    if repo is None:
        refuse(request, 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        return None
    commit = repo.commit_of(revision)
    if commit is None:
        refuse(request, 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"})
        return None
    return commit, repo.commits[commit]


def _info(request, hub, body, kind, name, revision="main"):
    found = _found(request, hub, kind, name, revision)
    if found:
        siblings = [{"rfilename": path} for path in found[1]]
        _send(request, {"id": name, "modelId": name, "sha": found[0], "siblings": siblings, "tags": []})


def _tree(request, hub, body, kind, name, revision):
    found = _found(request, hub, kind, name, revision)
    if not found:
        return None
    page = int(parse_qs(urlsplit(request.path).query).get("cursor", ["0"])[0])
    entries = []
    for path, blob in sorted(found[1].items()):
        entry = {"type": "file", "path": path, "size": len(blob.content), "oid": blob.git}
        if blob.is_lfs:
            entry["lfs"] = {"oid": blob.sha256, "size": len(blob.content), "pointerSize": 130}
        entries.append(entry)
    _send(request, entries[page:])


def _preupload(request, hub, body, kind, name, revision):
    found = _found(request, hub, kind, name, revision)
    if not found:
        return None
    files = []
    for file in json.loads(body)["files"]:
        mode = "lfs" if file["size"] >= LFS_FROM else "regular"
        files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False})
    _send(request, {"files": files})


def _batch(request, hub, body, name):
    objects = []
    for each in json.loads(body)["objects"]:
        href = f"{_url(request)}/lfs-upload/{each['oid']}"
        objects.append({"oid": each["oid"], "size": each["size"], "actions": {"upload": {"href": href}}})
    _send(request, {"transfer": "basic", "objects": objects})


def _upload(request, hub, body, oid):
    if hashlib.sha256(body).hexdigest() != oid:
        return refuse(request, 400, {})
    hub.uploads[oid] = body
    refuse(request, 200, {})


def _commit(request, hub, body, kind, name, revision):
    found = _found(request, hub, kind, name, revision)
    if not found:
        return None
    files = dict(found[1])
    for line in body.splitlines():
        change = json.loads(line)
        value = change["value"]
        match change["key"]:
            case "file":
                files[value["path"]] = Blob(base64.b64decode(value["content"]), False)
            case "lfsFile":
                files[value["path"]] = Blob(hub.uploads[value["oid"]], True)
            case "deletedFile":
                files.pop(value["path"])
    sha = hub.repos[f"{kind}/{name}"].commit(revision, files)
    _send(request, {"commitOid": sha, "commitUrl": f"{_url(request)}/{name}/commit/{sha}", "success": True})


def _resolve(request, hub, body, name, revision, path, kind="models"):
    found = _found(request, hub, kind or "models", name, revision)
    if not found:
        return None
    if hub.gated and request.headers["Authorization"] != f"Bearer {hub.gated}" and "cdn" not in request.path:
        return refuse(request, 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
    blob = found[1].get(path)
    if blob is None:
        return refuse(request, 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
    if blob.is_lfs and "cdn" not in request.path:
        return _redirect(request, found[0], blob)
    with hub.lock:
        fault = hub.faults.pop(0) if hub.faults else Fault()
    if fault.status:
        return refuse(request, fault.status, fault.headers)
    headers = {"ETag": f'"{blob.sha256 if blob.is_lfs else blob.git}"', "X-Repo-Commit": found[0]}
    send_file(request, hub.site, blob.content, fault, "application/octet-stream", headers)


def _redirect(request, commit: str, blob: Blob) -> None:
    """Large files lie elsewhere, as they do on the Hub."""
    headers = {
        "Location": f"{request.path}?cdn=1",
        "X-Repo-Commit": commit,
        "X-Linked-Size": str(len(blob.content)),
        "X-Linked-Etag": f'"{blob.sha256}"',
        "ETag": f'"{blob.sha256}"',
    }
    refuse(request, 302, headers)


KIND, NAME = "(?P<kind>models|datasets)", r"(?P<name>[^/]+/[^/]+)"
ROUTES = (
    ("/api/repos/create", _create),
    ("/api/validate-yaml", _validate),
    (f"/api/{KIND}/{NAME}", _info),
    (f"/api/{KIND}/{NAME}/revision/(?P<revision>.+)", _info),
    (f"/api/{KIND}/{NAME}/tree/(?P<revision>[^/]+)", _tree),
    (f"/api/{KIND}/{NAME}/preupload/(?P<revision>.+)", _preupload),
    (f"/api/{KIND}/{NAME}/commit/(?P<revision>.+)", _commit),
    (rf"/(?:datasets/)?{NAME}\.git/info/lfs/objects/batch", _batch),
    ("/lfs-upload/(?P<oid>[0-9a-f]+)", _upload),
    (f"/(?:(?P<kind>datasets)/)?{NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", _resolve),
)
