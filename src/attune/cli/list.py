"""List what recipes can name: families, tasks, normalizers, sources, and the recipes that ship with attune."""

from __future__ import annotations

import ast
from argparse import ArgumentParser, Namespace
from pathlib import Path

from attune.cli._terminal import add_json, print_json

HELP = "list the families, tasks, normalizers, sources and recipes there are"
EXAMPLE = "attune list tasks"

KINDS = {"families": "families", "tasks": "tasks", "normalizers": "text.normalizers", "sources": "sources"}
RECIPES = "recipes"


def add_arguments(parser: ArgumentParser) -> None:
    """Take what to list, and --json."""
    parser.add_argument("what", nargs="?", choices=[*KINDS, RECIPES], help="one kind only")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print each name with a line about it."""
    wanted = [arguments.what] if arguments.what else [*KINDS, RECIPES]
    found = {what: _recipes() if what == RECIPES else _plug_ins(KINDS[what]) for what in wanted}
    if arguments.json:
        print_json(found)
    else:
        print("\n\n".join(_table(what, entries) for what, entries in found.items()))
    return 0
