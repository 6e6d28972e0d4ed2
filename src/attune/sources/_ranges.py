"""Bytes from the middle of a file, in place, as loader workers read them out of shards.

Each source brings its own `ByteRanges`; here they are repeated by the one retry policy, and only for what is missing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from attune.errors import SourceError
from attune.secrets import shown
from attune.sources._retry import RANGE_READS, Retries, RetryableError, RetryPolicy, with_retries
from attune.sources._source import ByteRanges, is_remote, source_of

PATIENCE = "ATTUNE_PATIENCE"  # seconds; readers are other processes, which the environment reaches


def read_range(address: str, start: int, length: int) -> bytes:
    """`length` bytes from byte `start` on; fewer are a SourceError."""
    ranges = _ranges_of(address)
    retries = Retries(shown(address), _policy())
    content = b""
    while len(content) < length:
        try:
            content += ranges.read(address, start + len(content), length - len(content))
        except RetryableError as failure:
            content += failure.received
            retries.wait(failure, len(content))
            continue
        if len(content) < length:
            raise SourceError(
                f"{shown(address)} ends before byte {start + length}: it is truncated, or has changed since its "
                "manifest was written. Download it again, or run `attune prepare` again."
            )
    return content


def size_of(address: str) -> int:
    """The size of a file in bytes."""
    ranges = _ranges_of(address)
    return with_retries(shown(address), lambda: ranges.size(address), _policy())


def list_prefix(address: str) -> list[str] | None:
    """The addresses that begin with a prefix, sorted; None where the source cannot list."""
    list_addresses = _ranges_of(address).list_prefix
    if list_addresses is None:
        return None
    return with_retries(shown(address), lambda: list_addresses(address), _policy())


@contextmanager
def waiting_for_sources(seconds: float) -> Iterator[None]:
    """Have this process's range reads, and those of readers that it starts, wait for a server that is away."""
    before = os.environ.get(PATIENCE)
    os.environ[PATIENCE] = str(seconds)
    try:
        yield
    finally:
        os.environ.pop(PATIENCE, None) if before is None else os.environ.update({PATIENCE: before})


def _policy() -> RetryPolicy:
    return replace(RANGE_READS, patience=float(os.environ.get(PATIENCE, "0")))


def network_is_forbidden() -> bool:
    """Whether ATTUNE_OFFLINE forbids the network; readers are other processes, which the environment reaches."""
    return os.environ.get("ATTUNE_OFFLINE", "0").lower() not in ("", "0", "false", "no")


def _ranges_of(address: str) -> ByteRanges:
    ranges = source_of(address).ranges
    if ranges is None:
        raise SourceError(
            f"{shown(address)} cannot be read by byte range: its source has no `ranges`. Download it, and give "
            "its path."
        )
    if is_remote(address) and network_is_forbidden():
        raise SourceError(f"{shown(address)} needs the network, and --offline (ATTUNE_OFFLINE) is set.")
    return ranges
