"""Arguments and output that several commands share."""

from __future__ import annotations

import json
import shutil
import textwrap
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attune.catalog import recipe_path
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.metrics import Scores

MIN_WIDTH = 100  # in characters, also where there is no terminal


def add_recipe(parser: ArgumentParser) -> None:
    """Take a recipe file and its overrides, as `arguments.recipe` and `arguments.overrides`."""
    parser.add_argument(
        "recipe", type=recipe_file, help="recipe file (YAML), a run, or the name of a shipped one: example"
    )
    add_overrides(parser)


def recipe_file(text: str) -> Path:
    """The file, that of a run here or in an object store, or the shipped recipe where there is no such file."""
    return stored_recipe(text) or recipe_path(local_path(text))


def stored_recipe(text: str) -> Path | None:
    """The recipe of a run in an object store, if that is what a word names."""
    from attune.sources import is_address

    if not is_address(text):
        return None
    from attune.run_store import locate_recipe
    from attune.site import this_site
    from attune.transfers import with_progress

    return locate_recipe(text, with_progress(this_site()).cache)


def run_folder(text: str, which: str = "none") -> Path:
    """The folder of a run; of one in an object store this machine's copy as it is now, with the tensors of `which`."""
    from attune.sources import is_address, shown

    if not is_address(text):
        return Path(text)
    from attune.run_store import locate_stored
    from attune.site import this_site
    from attune.transfers import with_progress

    found = locate_stored(text, with_progress(this_site()).cache, which)
    if found is None:
        raise ConfigError(f"There is no run at {shown(text)}. Give a run, or a folder of this machine.")
    return found


def local_path(text: str) -> Path:
    """The type of a path on this machine: an address would be taken for a folder with a colon in its name."""
    from attune.sources import is_address, shown

    if is_address(text):
        raise ConfigError(
            f"{shown(text)} cannot be used here: a file or folder of this machine is expected. `attune pull ADDRESS "
            "--to FOLDER` downloads one, `attune push FOLDER ADDRESS` uploads a model or, with --run, a run."
        )
    return Path(text)


def add_overrides(parser: ArgumentParser) -> None:
    """Take overrides, as `arguments.overrides`."""
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # or else argparse calls them required
        metavar="section.key=value",
        help="override a recipe value, e.g. optimizer.lr=1e-4",
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


def between(low: float, high: float, unit: str = "") -> Callable[[str], float]:
    """The type of a number argument with bounds, both of which it may be."""

    def number(text: str) -> float:
        if not low <= (value := float(text)) <= high:
            raise ArgumentTypeError(f"{text} is not between {low:g} and {high:g}{unit}")
        return value

    return number


def port(text: str) -> int:
    """The type of --port: 0 is any that is free."""
    if not 0 <= (value := int(text)) <= 65535:
        raise ArgumentTypeError(f"{value} is not between 0 and 65535")
    return value


def print_normalizer_hint(scores: Scores, remedy: str) -> None:
    """Say that texts were compared as they are, and how to ignore case and punctuation."""
    if scores.conditions.get("normalizer") == "none":
        print(f"normalizer none: case and punctuation count. To ignore them: {remedy}")


def wrapped(text: str, indent: str = "") -> str:
    """A long line as several that the terminal is wide enough for; `indent` is that of all but the first."""
    width = max(MIN_WIDTH, shutil.get_terminal_size().columns)
    wrapper = textwrap.TextWrapper(width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(text)


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
