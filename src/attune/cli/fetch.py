"""Download everything that a recipe names, to run it offline."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attune.cli._terminal import add_json, add_recipe, print_json

if TYPE_CHECKING:
    from attune.loading.lock import Fetched

HELP = "download everything that a recipe needs; with --locked, exactly what a run used"
EXAMPLE = "attune fetch runs/demo/recipe.yaml --locked runs/demo/sources.lock.json"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a recipe, overrides and a lock."""
    add_recipe(parser)
    parser.add_argument("--locked", type=Path, metavar="LOCK", help="sources.lock.json of a run")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print each source when it is downloaded."""
    from attune import recipe
    from attune.loading.lock import fetch
    from attune.site import this_site
    from attune.sources import read_lock
    from attune.transfers import with_progress

    loaded = recipe.load(arguments.recipe, arguments.overrides).recipe
    locked = read_lock(arguments.locked) if arguments.locked else {}
    done = []
    for fetched in fetch(loaded, with_progress(this_site()), locked):
        done.append(fetched)
        if not arguments.json:
            print(_line(fetched), flush=True)
    if arguments.json:
        print_json([_plain(fetched) for fetched in done])
    return 0


def _line(fetched: Fetched) -> str:
    entry = fetched.entry
    if entry is None:
        return f"{fetched.named.key}: {fetched.path} (local)"
    return f"{fetched.named.key}: {entry.source} at {entry.revision}, {entry.size / 1e6:,.1f} MB in {fetched.path}"


def _plain(fetched: Fetched) -> dict[str, Any]:
    from dataclasses import asdict

    from attune.sources import shown

    entry = asdict(fetched.entry) if fetched.entry else {"source": shown(fetched.named.source)}
    return {"key": fetched.named.key, "path": str(fetched.path), **entry}
