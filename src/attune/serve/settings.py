"""What a server allows: sizes, durations, how many may wait, and who may ask."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Where a server says no instead of running out of memory or time."""

    upload_mib: int = 100
    audio_seconds: float = 4 * 3600.0
    upload_seconds: float = 300.0  # that a client may take to send its file
    open_requests: int = 128  # requests and sockets at once; more are answered 503
    waiting_per_client: int = 64  # chunks of one client in the queue; more are answered 429
    chunk_seconds: float = 60.0  # that a model without a limit of its own decodes at once
    batch_seconds: float = 120.0  # of audio decoded together
    batch_size: int = 32
    diarized_seconds: float = 1800.0  # of one recording: who speaks when is found in all of it at once

    @property
    def upload_bytes(self) -> int:
        """The largest request body."""
        return self.upload_mib * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How to serve."""

    limits: ServerLimits = ServerLimits()
    token: str | None = None  # that clients must send, unless there is none
    collect: Path | None = None  # where the page may save training rows
    is_local: bool = True  # only this machine can reach it
