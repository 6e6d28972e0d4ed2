"""Whether a file is what its server said it would be, in whichever of four ways it said so."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 20


class Corrupt(Exception):
    """All bytes came, and they are not the right ones."""


@dataclass(frozen=True, slots=True)
class Hashes:
    """What is known of a file's content before it is here, in whichever ways its server tells it."""

    sha256: str | None = None
    git: str | None = None  # SHA-1 of a git blob
    md5: str | None = None
    parts: tuple[str, int] | None = None  # an S3 ETag of many parts, and how large a part is


def sha256_if(path: Path, told: Sequence[Hashes]) -> str:
    """The SHA-256 of a file that has every hash it was told to have; if not, Corrupt."""
    digests = _digests(path, told)
    for hashes in told:
        expected = {"sha256": hashes.sha256, "git": hashes.git, "md5": hashes.md5}
        expected["parts"] = hashes.parts[0] if hashes.parts else None
        for kind, digest in expected.items():
            if digest is not None and digests[kind] != digest:
                raise Corrupt(f"expected {kind} {digest}, got {digests[kind]}")
    return digests["sha256"]


def _digests(path: Path, told: Sequence[Hashes]) -> dict[str, str]:
    """Each hash that was told, of the bytes on the disk, in one pass."""
    digests = {"sha256": hashlib.sha256()}
    if any(hashes.git for hashes in told):
        digests["git"] = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    if any(hashes.md5 for hashes in told):
        digests["md5"] = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            for digest in digests.values():
                digest.update(chunk)
    found = {kind: digest.hexdigest() for kind, digest in digests.items()}
    sizes = [hashes.parts[1] for hashes in told if hashes.parts]
    return {**found, **({"parts": _etag_of_parts(path, sizes[0])} if sizes else {})}


def _etag_of_parts(path: Path, part_size: int) -> str:
    """What S3 calls a file that was uploaded in parts of this size: the MD5 of their MD5s, and how many."""
    parts = []
    with path.open("rb") as file:
        while chunk := file.read(part_size):
            parts.append(hashlib.md5(chunk, usedforsecurity=False).digest())
    return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"
