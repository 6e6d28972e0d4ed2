"""Arguments and output that several commands share."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path


def add_recipe(parser: ArgumentParser) -> None:
    """Take a recipe file and its overrides, as `arguments.recipe` and `arguments.overrides`."""
    parser.add_argument("recipe", type=Path, help="recipe file (YAML), or the name of a shipped one")
    add_overrides(parser)


def add_overrides(parser: ArgumentParser) -> None:
    """Take overrides, as `arguments.overrides`."""
    parser.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="override a recipe value, e.g. optimizer.lr=1e-4"
    )


def add_json(parser: ArgumentParser) -> None:
    """Take --json, as `arguments.json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def at_least(least: int) -> Callable[[str], int]:
    """The type of an integer argument with a minimum."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
