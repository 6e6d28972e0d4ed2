"""Where things run: the settings of a machine, never of an experiment. No result depends on them."""

import os
from dataclasses import dataclass
from pathlib import Path

from attune.sources import Cache


@dataclass(frozen=True, slots=True)
class Site:
    """Where downloads are kept, how many processes read audio, and which kind of device computes."""

    cache: Cache
    workers: int
    device: str = "auto"  # auto | cpu | cuda


def this_site(workers: int | None = None, device: str = "auto", is_offline: bool = False) -> Site:
    """This machine's settings: ATTUNE_CACHE or ~/.cache/attune, and one reader for every core but one.

    ATTUNE_OFFLINE=1 means that nothing is fetched, whatever is asked for.
    """
    folder = Path(os.environ.get("ATTUNE_CACHE") or "~/.cache/attune").expanduser()
    is_offline = is_offline or os.environ.get("ATTUNE_OFFLINE", "0").lower() not in ("", "0", "false", "no")
    cache = Cache(folder, is_offline)
    return Site(cache, max(1, (os.cpu_count() or 1) - 1) if workers is None else workers, device)
