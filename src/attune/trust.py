"""A model's own recipe may come from anybody, and a plug-in's dotted name in it would import that module.

Only what attune has and what installed packages offer as entry points is used without asking. Other modules are those
that the user names: in an override, or by having imported them.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from attune.errors import ConfigError
from attune.plain_yaml import OVERRIDE, Node, join

NAMES = ("task.name", "model.family", "model.upstream", "task.normalizer")
_SCHEME = re.compile(r"([A-Za-z_]\w*(?:\.\w+)+)://")  # of a source that is a module


def require_trusted(recipe: Node, path: Path) -> None:
    """Refuse a model's own recipe that names a module which nobody here has named."""
    if not (path.parent / "model.safetensors").is_file():
        return
    found = [(key, node, name) for key, node, name in _modules(recipe, "") if name not in sys.modules]
    if found:
        key, node, name = found[0]
        remedy = f"add {key}={node.value}" if key in NAMES else f"import {name} first, in Python"
        raise ConfigError(f"{node.where}: {key}: this model would run the module {name!r}. If you trust it, {remedy}.")


def _modules(node: Node, key: str) -> Iterator[tuple[str, Node, str]]:
    """Every module that values of a file would import, with its key."""
    if isinstance(node.value, str) and node.where != OVERRIDE:
        if scheme := _SCHEME.match(node.value):
            yield key, node, scheme[1]
        elif key in NAMES and "." in node.value:
            yield key, node, node.value
    elif isinstance(node.value, tuple):
        for each in node.value:
            yield from _modules(each, key)
    else:
        for name, each in node.entries().items():
            yield from _modules(each, join(key, name))
