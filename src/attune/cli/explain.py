"""Explain a recipe key: type, default, meaning, and since which version."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, print_json, wrapped

if TYPE_CHECKING:
    from attune.recipe_keys import RecipeKey

HELP = "explain a recipe key: its type, default and meaning"
EXAMPLE = "attune explain train.patience"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a key or a section."""
    parser.add_argument("key", nargs="?", help="key or section, e.g. train.patience or train (default: all)")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print one key in full, or a line for each key of a section."""
    from dataclasses import asdict

    from attune.recipe_keys import explain, recipe_keys

    found = explain(arguments.key) if arguments.key else list(recipe_keys())
    if arguments.json:
        print_json([asdict(each) for each in found])
    elif arguments.key and all(each.key == arguments.key for each in found):
        print("\n\n".join(_in_full(each) for each in found))
    else:
        print("\n".join(_lines(found)))
    return 0


def _in_full(key: RecipeKey) -> str:
    owner = f"  ({key.owner})" if key.owner else ""
    facts = {"type": key.type, "default": key.default, "since": key.since}
    lines = [key.meaning, *(f"{name}: {fact}" for name, fact in facts.items())]
    return "\n".join([f"{key.key}{owner}", *(wrapped(f"  {line}", "    ") for line in lines)])


def _lines(keys: Sequence[RecipeKey]) -> list[str]:
    names = [f"{each.key} ({each.owner})" if each.owner else each.key for each in keys]
    width = max(map(len, names))
    lines = [f"{name:{width}}  {each.meaning} [{each.default}]" for name, each in zip(names, keys, strict=True)]
    return [wrapped(line, " " * (width + 2)) for line in lines]
