"""Whether a file has the hashes that its server announced, of whichever kinds."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 20


class ChecksumMismatch(Exception):
    """All bytes arrived, and their hash is wrong."""


@dataclass(frozen=True, slots=True)
class Hashes:
    """The hashes of a file's content that its server announces."""

    sha256: str | None = None
    git: str | None = None  # SHA-1 of a git blob
    md5: str | None = None
    parts: tuple[str, int] | None = None  # the S3 ETag of a multipart upload, and the size of a part


def checked_sha256(text: str) -> str:
    """A SHA-256 that somebody else wrote down; ValueError where it is another text, such as a path."""
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError(f"{text!r:.80} is no SHA-256")
    return text


def verified_sha256(path: Path, expected: Sequence[Hashes]) -> str:
    """The SHA-256 of a file that has all expected hashes; ChecksumMismatch if it has not."""
    digests = _digests(path, expected)
    for hashes in expected:
        wanted = {"sha256": hashes.sha256, "git": hashes.git, "md5": hashes.md5}
        wanted["parts"] = hashes.parts[0] if hashes.parts else None
        for kind, digest in wanted.items():
            if digest is not None and digests[kind] != digest:
                raise ChecksumMismatch(f"expected {kind} {digest}, got {digests[kind]}")
    return digests["sha256"]


def _digests(path: Path, expected: Sequence[Hashes]) -> dict[str, str]:
    """Each expected kind of hash, of the bytes on the disk, in one pass."""
    digests = {"sha256": hashlib.sha256()}
    if any(hashes.git for hashes in expected):
        digests["git"] = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    if any(hashes.md5 for hashes in expected):
        digests["md5"] = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            for digest in digests.values():
                digest.update(chunk)
    found = {kind: digest.hexdigest() for kind, digest in digests.items()}
    sizes = [hashes.parts[1] for hashes in expected if hashes.parts]
    return {**found, **({"parts": _etag_of_parts(path, sizes[0])} if sizes else {})}


def _etag_of_parts(path: Path, part_size: int) -> str:
    """S3's ETag of a file that was uploaded in parts of this size: the MD5 of their MD5s, and their number."""
    parts = []
    with path.open("rb") as file:
        while chunk := file.read(part_size):
            parts.append(hashlib.md5(chunk, usedforsecurity=False).digest())
    return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"
