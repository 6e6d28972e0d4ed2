"""What several verbs share: their arguments and how they print."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path


def add_recipe(parser: ArgumentParser) -> None:
    """Take a recipe file and its overrides, as `arguments.recipe` and `arguments.overrides`."""
    parser.add_argument("recipe", type=Path, help="a recipe file")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings with the last word")


def add_json(parser: ArgumentParser) -> None:
    """Take --json, as `arguments.json`."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number and not too small."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
