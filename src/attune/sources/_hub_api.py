"""The two questions that are asked of the Hub before a download: which commit, and which files it has.

Asked with our own transport, so that the number of requests and their time are bounded, and what is not the Hub's
answer is recognized.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from attune.errors import SourceError
from attune.secrets import shown
from attune.sources._addresses import HubAddress, hub_endpoint, read_hub
from attune.sources._http import credentials_after, following_redirects
from attune.sources._responses import printable, read_all, seconds_until, title_of
from attune.sources._retry import RetryableError, is_transient

MOST_PAGES = 1000  # of a listing; the Hub has a thousand files on each
MOST_BYTES = 64 << 20  # of an answer
_NEXT = re.compile(r"<([^>]+)>\s*;[^,]*\brel=\"?next\"?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository: large ones have a SHA-256, others git's hash."""

    path: str
    size: int
    sha256: str | None
    git: str | None


@dataclass(frozen=True, slots=True)
class HubQuestion:
    """What is asked about, for messages, and for how long an answer is awaited."""

    address: str
    timeout: float

    def commit_of(self, hub: HubAddress, revision: str | None) -> str:
        """The commit that a revision is now; without one, of the main branch."""
        url = f"{_repo_url(hub)}/revision/{quote(revision, safe='')}" if revision else _repo_url(hub)
        value, _ = self._ask(url, hub_credentials())
        commit = value.get("sha") if isinstance(value, dict) else None
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40,64}", commit):
            raise self._not_the_hubs(_kind_of(value))
        return commit

    def files_of(self, hub: HubAddress, commit: str) -> dict[str, HubFile]:
        """All files of a commit by their paths."""
        url: str | None = f"{_repo_url(hub)}/tree/{commit}?recursive=true&expand=false"
        credentials, files = hub_credentials(), dict[str, HubFile]()
        for _ in range(MOST_PAGES):
            if url is None:
                return files
            value, following = self._ask(url, credentials)
            page = self._read_page(value)
            if following and page.keys() <= files.keys():
                break
            files |= page
            if following:
                following = urljoin(url, following)
                credentials = credentials_after(urlsplit(url), urlsplit(following), credentials)
            url = following
        raise SourceError(
            f"{self.address}: {shown(hub_endpoint())} lists too many files ({len(files):,} so far). Name one file "
            "or folder of it, or check HF_ENDPOINT."
        )

    def exists(self, url: str) -> bool:
        """Whether the Hub describes something at an address of its API."""
        return isinstance(self._ask(url, {})[0], dict)

    def _read_page(self, value: Any) -> dict[str, HubFile]:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self._not_the_hubs(_kind_of(value))
        files = (self._read_entry(entry) for entry in value if entry.get("type") != "directory")
        return {file.path: file for file in files}

    def _read_entry(self, entry: Mapping[str, Any]) -> HubFile:
        path, size, git, large = entry.get("path"), entry.get("size"), entry.get("oid"), entry.get("lfs")
        sha256 = large.get("oid", large.get("sha256")) if isinstance(large, dict) else None
        is_sound = isinstance(path, str) and path and type(size) is int and size >= 0
        is_hashed = _is_hash(sha256, 64) if large else _is_hash(git, 40)
        if not (is_sound and is_hashed):
            raise self._not_the_hubs("a file without path, size or hash")
        return HubFile(str(path), int(size or 0), sha256, git)

    def _ask(self, url: str, credentials: Mapping[str, str]) -> tuple[Any, str | None]:
        """The JSON at an address of the API, and the address of the next page."""
        with following_redirects(url, {}, credentials, self.timeout) as response:
            if response.status != 200:
                raise self._refusal(response)
            content = read_all(response, MOST_BYTES)
            following = _NEXT.search(", ".join(response.headers.get_all("Link", ())))
        try:
            return json.loads(content), following[1] if following else None
        except (ValueError, RecursionError):
            is_page = content[:512].lstrip().startswith(b"<")
            raise self._not_the_hubs(f"a web page{title_of(content)}" if is_page else "no JSON") from None

    def _refusal(self, response: HTTPResponse) -> Exception:
        status, code = response.status, response.headers.get("X-Error-Code", "")
        message = printable(response.headers.get("X-Error-Message", ""))
        if is_transient(status):
            after_seconds = seconds_until(response.headers.get("Retry-After"))
            return RetryableError(f"the Hub answered {status}", after_seconds=after_seconds)
        advice = hub_advice(read_hub(self.address))
        is_hidden = status == 401 and message != "Invalid credentials in Authorization header"
        if code == "RevisionNotFound":
            return SourceError(f"{self.address}: the Hub has no such revision, or you have no access. {advice}")
        if code == "RepoNotFound" or (is_hidden and code != "GatedRepo"):
            return SourceError(f"{self.address}: the Hub has no such repository, or you have no access. {advice}")
        return SourceError(f"{self.address}: the Hub answered {status}{f' ({message})' if message else ''}. {advice}")

    def _not_the_hubs(self, what: str) -> SourceError:
        return SourceError(
            f"{self.address}: {shown(hub_endpoint())} answered with {what}, not as the Hub does. A login page or "
            "a proxy may be in between: check the network and HF_ENDPOINT."
        )


def hub_advice(hub: HubAddress) -> str:
    """What to do about a repository that is not found or not open to everyone."""
    page = f"{shown(hub_endpoint())}/{'datasets/' if hub.kind == 'dataset' else ''}{hub.repo}"
    return (
        f"Check the name and the revision. If it is private or gated, accept its conditions at {page}, then run "
        "`hf auth login` or set HF_TOKEN."
    )


def hub_credentials() -> Mapping[str, str]:
    """The authorization for the Hub: HF_TOKEN, or what `hf auth login` has stored."""
    from huggingface_hub import get_token

    return {"Authorization": f"Bearer {token}"} if (token := get_token()) else {}


def _repo_url(hub: HubAddress) -> str:
    return f"{hub_endpoint()}/api/{hub.kind}s/{hub.repo}"


def _is_hash(value: Any, length: int) -> bool:
    return isinstance(value, str) and re.fullmatch(rf"[0-9a-f]{{{length}}}", value) is not None


def _kind_of(value: Any) -> str:
    names = {dict: "another object", list: "a list", str: "a text", type(None): "null"}
    return names.get(type(value), "a number")
