"""Manage the download cache: list, verify, prune."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, at_least, print_json

if TYPE_CHECKING:
    from attune.sources import Cache

HELP = "list, verify or prune the download cache"
EXAMPLE = "attune cache prune --days 90"


def add_arguments(parser: ArgumentParser) -> None:
    """Take the action and its options."""
    parser.add_argument(
        "action",
        choices=("ls", "verify", "prune"),
        help="list the entries, verify their checksums, or remove unused ones",
    )
    parser.add_argument(
        "--days",
        type=at_least(0),
        default=30,
        metavar="N",
        help="prune: remove what was unused for N days (default 30)",
    )
    parser.add_argument("--remove", action="store_true", help="verify: remove damaged files, to be downloaded again")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Run the action; exit 1 when a file is damaged."""
    from attune.site import this_site

    cache = this_site().cache
    if arguments.action == "ls":
        return _list(cache, arguments.json)
    if arguments.action == "verify":
        return _verify(cache, arguments.remove, arguments.json)
    return _prune(cache, arguments.days, arguments.json)


def _list(cache: Cache, as_json: bool) -> int:
    from dataclasses import asdict
    from datetime import datetime

    from attune.sources import contents

    kept = contents(cache)
    if as_json:
        print_json([{**asdict(each.entry), "used": each.used, "whole": each.is_whole} for each in kept])
        return 0
    for each in kept:
        day = datetime.fromtimestamp(each.used).date()
        broken = "" if each.is_whole else "  (files are missing)"
        print(f"{each.entry.size / 1e6:10,.1f} MB  {day}  {each.entry.source}  {each.entry.revision[:20]}{broken}")
    size = sum({file.sha256: file.size for each in kept for file in each.entry.files.values()}.values())
    print(f"{len(kept)} sources, {size / 1e6:,.1f} MB in {cache.folder}")
    return 0


def _verify(cache: Cache, remove: bool, as_json: bool) -> int:
    from attune.sources import contents, damaged

    bad = list(damaged(cache, remove))
    missing = [each.entry.source for each in contents(cache) if not each.is_whole and not remove]
    if as_json:
        print_json({"damaged": [{"file": str(path), "sources": users} for path, users in bad], "missing": missing})
    else:
        for path, users in bad:
            print(f"damaged: {path}, of {', '.join(users) or 'no source'}{' (removed)' if remove else ''}")
        for source in missing:
            print(f"files are missing: {source}")
        if not bad and not missing:
            print(f"all files in {cache.folder} are intact")
    return 1 if bad or missing else 0


def _prune(cache: Cache, days: float, as_json: bool) -> int:
    from attune.sources import prune

    pruned = prune(cache, days)
    if as_json:
        print_json({"sources": list(pruned.sources), "files": pruned.files, "bytes": pruned.size})
    else:
        for source in pruned.sources:
            print(f"removed: {source}")
        print(f"{len(pruned.sources)} sources and {pruned.files} files removed, {pruned.size / 1e6:,.1f} MB")
    return 0
