"""Where things run: the settings of a machine, never of an experiment. No result depends on them."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Site:
    """Where downloads are kept, how many processes read audio, and which kind of device computes."""

    cache: Path
    workers: int
    device: str = "auto"  # auto | cpu | cuda


def this_site(workers: int | None = None, device: str = "auto") -> Site:
    """This machine's settings: ATTUNE_CACHE or ~/.cache/attune, and one reader for every core but one."""
    cache = Path(os.environ.get("ATTUNE_CACHE") or "~/.cache/attune").expanduser()
    return Site(cache, max(1, (os.cpu_count() or 1) - 1) if workers is None else workers, device)
