"""Find plug-ins. A plug-in is a file whose name is its name, exporting one object; nothing registers itself.

In the package: `attune/<kind>/<name>.py` (or a folder). Elsewhere: an entry point of group `attune.<kind>`, or a
dotted module name written in the recipe.
"""

import difflib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from attune.errors import ConfigError

EXPORTS = {
    "families": "FAMILY",
    "tasks": "TASK",
    "text.normalizers": "NORMALIZER",
    "sources": "SOURCE",
    "corpora": "CORPUS",
}


def names(kind: str) -> list[str]:
    """The names of all plug-ins of a kind, in the package and from entry points."""
    package = importlib.util.find_spec(f"attune.{kind}")
    folders = package.submodule_search_locations if package else []
    own = [module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")]
    return sorted({*own, *offered(kind).names})


def offered(kind: str) -> EntryPoints:
    """The plug-ins of a kind that installed packages bring."""
    return _offered(kind, tuple(sys.path))


@cache
def _offered(kind: str, path: tuple[str, ...]) -> EntryPoints:
    # All packages on the path are read for it, which takes tens of milliseconds.
    return entry_points(group=f"attune.{kind}")


def find(kind: str, name: str) -> Any:
    """The object that plug-in `name` exports; an unknown name is answered with the nearest one."""
    for point in offered(kind).select(name=name):
        return point.load()
    if name in names(kind):
        return getattr(importlib.import_module(f"attune.{kind}.{name}"), EXPORTS[kind])
    if "." in name and all(part.isidentifier() for part in name.split(".")):
        return _out_of_tree(kind, name)
    noun = kind.rsplit(".", 1)[-1]
    raise ConfigError(f"There is no {name!r} among the {noun}{suggestion(name, names(kind))}")


def suggestion(name: str, known: Iterable[str]) -> str:
    """A did-you-mean to append to a message: the nearest name, or the list of all."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f" (known: {', '.join(known)})" if known else ""


def _out_of_tree(kind: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(name), EXPORTS[kind])
    except ModuleNotFoundError as error:
        raise ConfigError(f"No module {error.name!r} for the plug-in {name!r}. Is its package installed?") from error
    except AttributeError as error:
        raise ConfigError(f"Module {name!r} does not export {EXPORTS[kind]}.") from error
