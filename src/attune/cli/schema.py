"""Print the JSON schema of recipes, for editors."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from attune.cli._terminal import print_json

HELP = "print the JSON schema of recipes, for editors"
EXAMPLE = "attune schema > recipe.schema.json"


def add_arguments(parser: ArgumentParser) -> None:
    """Take nothing."""


def run(arguments: Namespace) -> int:
    """Print the schema."""
    from attune.recipe_keys import json_schema

    print_json(json_schema())
    return 0
