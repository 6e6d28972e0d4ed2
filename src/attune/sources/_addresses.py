"""Parsed addresses: the one place that knows how `s3://`, `hf://` and `https://` are written."""

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote, unquote, urldefrag, urlsplit

from attune.errors import SourceError
from attune.secrets import digested, has_secrets, shown

_S3 = re.compile(r"s3://(?P<bucket>[^/@:?#]+)/(?P<key>.*)")
_HUB = re.compile(
    r"hf://(?P<kind>datasets/|models/)?(?P<repo>[\w.-]+/[\w.-]+)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(?P<path>.*))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A repository of the Hub, or a file or folder of it."""

    repo: str
    kind: str  # model | dataset
    revision: str | None
    path: str  # in the repository; empty for all of it

    @property
    def is_fixed(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return bool(self.revision and _COMMIT.fullmatch(self.revision))


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A web address: its URL, its name in messages and files, and the hash that it must have."""

    url: str
    shown: str
    host: str
    name: str
    sha256: str | None


def read_s3(address: str) -> tuple[str, str]:
    """The bucket, and the key or prefix in it."""
    _require_no_secrets(address, "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.")
    found = _S3.fullmatch(address)
    if not found:
        raise SourceError(f"{address} is not an S3 address. Expected s3://BUCKET/KEY or s3://BUCKET/PREFIX/.")
    return found["bucket"], found["key"]


def read_hub(address: str) -> HubAddress:
    """The parts of `hf://[datasets/]ORG/NAME[@REVISION][/PATH]`."""
    _require_no_secrets(address, "Set HF_TOKEN, or run `hf auth login`.")
    found = _HUB.fullmatch(address)
    path = (found["path"] or "").strip("/") if found else ""
    if not found or ".." in PurePosixPath(path).parts:
        raise SourceError(
            f"{address} is not a Hub address. Expected hf://ORG/NAME, hf://ORG/NAME@REVISION/FILE or "
            "hf://datasets/ORG/NAME."
        )
    kind = "dataset" if found["kind"] == "datasets/" else "model"
    return HubAddress(found["repo"], kind, found["revision"], path)


def read_web(address: str) -> WebAddress:
    """The parts of `https://HOST/PATH[?QUERY][#sha256=…]`."""
    url, fragment = urldefrag(address)
    try:
        parts = urlsplit(url)
        is_sound = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise SourceError(f"{shown(address)} is not a web address. Expected https://HOST/PATH.")
    if "@" in parts.netloc:
        raise SourceError(
            f"{shown(address)} contains a user and password, which would end up in files and logs. "
            f"Put them into ~/.netrc: machine {parts.hostname} login USER password PASSWORD"
        )
    url = quote(url, safe="%/:=&?~#+!$,;'@()*[]")  # letters and spaces as browsers send them
    name = PurePosixPath(unquote(parts.path)).name
    name = re.sub(r"[^\w.-]", "_", name).lstrip(".")[-100:] or "file"
    return WebAddress(url, shown(address), str(parts.hostname), name, _sha256(fragment, address))


def require_openable(address: str) -> None:
    """Refuse an address that was read from a run's files, where values that may be secret are digests."""
    names = digested(address)
    if names:
        raise SourceError(
            f"{address} is not in the cache and cannot be requested: the value of {', '.join(names)} may be "
            "secret and is not written into files. Use the original recipe of the run."
        )


def _require_no_secrets(address: str, instead: str) -> None:
    if has_secrets(address):
        raise SourceError(
            f"{shown(address)} contains a user, password or query, which would end up in files and logs. {instead}"
        )


def _sha256(fragment: str, address: str) -> str | None:
    if not fragment:
        return None
    found = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", fragment)
    if not found:
        raise SourceError(f"{shown(address)}: expected #sha256=… with 64 hexadecimal digits.")
    return found[1].lower()


def hub_endpoint() -> str:
    """The Hub's URL: HF_ENDPOINT, or the public one."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
