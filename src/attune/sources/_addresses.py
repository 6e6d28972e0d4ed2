"""Addresses taken apart: the one place that knows how `s3://` and `hf://` are written."""

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from attune.errors import SourceError

_S3 = re.compile(r"s3://(?P<bucket>[^/@:?#]+)/(?P<key>.*)")
_HUB = re.compile(
    r"hf://(?P<kind>datasets/|models/)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.*))?"
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
        """Whether the revision can never be anything else."""
        return bool(self.revision and _COMMIT.fullmatch(self.revision))


def read_s3(address: str) -> tuple[str, str]:
    """The bucket, and the key or prefix in it."""
    found = _S3.fullmatch(address)
    if not found:
        raise SourceError(f"{address} is not an address in S3. Expected s3://BUCKET/KEY, or s3://BUCKET/PREFIX/.")
    return found["bucket"], found["key"]


def read_hub(address: str) -> HubAddress:
    """The parts of `hf://[datasets/]ORG/NAME[@REVISION][/PATH]`."""
    found = _HUB.fullmatch(address)
    path = (found["path"] or "").strip("/") if found else ""
    if not found or ".." in PurePosixPath(path).parts:
        raise SourceError(
            f"{address} is not an address on the Hub. Expected hf://ORG/NAME, hf://ORG/NAME@REVISION/FILE or "
            "hf://datasets/ORG/NAME."
        )
    kind = "dataset" if found["kind"] == "datasets/" else "model"
    return HubAddress(found["repo"], kind, found["revision"], path)


def hub_endpoint() -> str:
    """The Hub's own address: HF_ENDPOINT, or the public one."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
