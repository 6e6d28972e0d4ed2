"""Show a recipe with all defaults and the origin of each value."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, add_recipe, print_json

if TYPE_CHECKING:
    from attune.recipe import LoadedRecipe

HELP = "show a recipe with all defaults and the origin of each value"
EXAMPLE = "attune show recipes/demo.yaml optimizer.lr=1e-4"

MAX_COLUMN = 60  # a long list must not push every comment off the screen


def add_arguments(parser: ArgumentParser) -> None:
    """Take a recipe, overrides and --json."""
    add_recipe(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the resolved recipe."""
    from attune import config, recipe

    loaded = recipe.load(arguments.recipe, arguments.overrides)
    if arguments.json:
        plain = recipe.to_plain(loaded.recipe)
        print_json({"recipe": plain, "origins": {key: loaded.origin(key) for key in config.flatten(plain)}})
    else:
        print("\n".join(annotated(loaded)))
    return 0


def annotated(loaded: LoadedRecipe) -> list[str]:
    """The lines of the resolved recipe, each value with its origin in a comment."""
    from attune import recipe
    from attune.plain_yaml import yaml_lines

    lines = list(yaml_lines(recipe.to_plain(loaded.recipe)))
    column = max(len(line) for line, _ in lines if len(line) <= MAX_COLUMN)
    return [f"{line:{column}}  # {loaded.origin(key)}" if key else line for line, key in lines]
