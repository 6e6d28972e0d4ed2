"""A model's own recipe may come from anybody, and a plug-in's dotted name in it would import that module.

Only what attune has and what installed packages offer as entry points is used without asking. Other modules are those
that the user names: in an override, or by having imported them. A run is mostly one's own, and goes on with the
plug-ins of its recipe; but attune puts no program into a run, so one that lies there came from whoever made the run.
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
    """Refuse the recipe of a model that names a module which nobody here has named, or of a run one that is in it."""
    folder, found = path.parent, list(_modules(recipe, ""))
    if (folder / "model.safetensors").is_file():
        found = [each for each in found if each[2] not in sys.modules]
    elif (folder / "checkpoints").is_dir():
        found = [each for each in found if Path(each[2]).resolve().is_relative_to(folder.resolve())]
    else:
        return
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
