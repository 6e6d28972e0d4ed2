"""Settings of a machine, not of an experiment. No result depends on them."""

import os
from dataclasses import dataclass
from pathlib import Path

from attune.errors import ConfigError
from attune.processes import cores
from attune.sources import Cache, network_is_forbidden

TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Site:
    """The download cache, the number of loader workers, the kind of device, and the timeout of collectives."""

    cache: Cache
    workers: int
    device: str = "auto"  # auto | cpu | cuda
    timeout: float = TIMEOUT_SECONDS


def this_site(
    workers: int | None = None, device: str = "auto", is_offline: bool = False, timeout: float | None = None
) -> Site:
    """This machine's settings: ATTUNE_CACHE or ~/.cache/attune, one loader worker less than a rank has cores,
    ATTUNE_TIMEOUT.

    ATTUNE_OFFLINE=1 disables all downloads.
    """
    folder = Path(os.environ.get("ATTUNE_CACHE") or "~/.cache/attune").expanduser()
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    readers = max(1, cores() // ranks_here - 1) if workers is None else workers
    return Site(
        Cache(folder, is_offline or network_is_forbidden()), readers, device, _timeout() if timeout is None else timeout
    )


def _timeout() -> float:
    text = os.environ.get("ATTUNE_TIMEOUT") or str(TIMEOUT_SECONDS)
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"ATTUNE_TIMEOUT must be a number of seconds, found {text!r}.") from error
