"""Bytes from the middle of a file, in place, as loader workers read them out of shards.

Each source brings its own `ByteRanges`; here they are repeated by the one retry policy, and only for what is missing.
"""

import os

from attune.errors import SourceError
from attune.secrets import shown
from attune.sources._retry import RANGE_READS, Retries, RetryableError, with_retries
from attune.sources._source import ByteRanges, is_remote, source_of


def read_range(address: str, start: int, length: int) -> bytes:
    """`length` bytes from byte `start` on; fewer are a SourceError."""
    ranges = _ranges_of(address)
    retries = Retries(shown(address), RANGE_READS)
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
    return with_retries(shown(address), lambda: ranges.size(address), RANGE_READS)


def list_prefix(address: str) -> list[str] | None:
    """The addresses that begin with a prefix, sorted; None where the source cannot list."""
    list_addresses = _ranges_of(address).list_prefix
    if list_addresses is None:
        return None
    return with_retries(shown(address), lambda: list_addresses(address), RANGE_READS)


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
