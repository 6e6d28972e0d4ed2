"""Find plug-ins. A plug-in is a file whose name is its name, exporting one object; nothing registers itself.

In the package: `attune/<kind>/<name>.py` (or a folder). Elsewhere: an entry point of group `attune.<kind>`, a dotted
module name written in the recipe, or the path of a file, such as `./my_task.py`.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from attune.errors import ConfigError

if TYPE_CHECKING:  # declared above this module; corpora and sources declare theirs themselves
    from attune.contracts import Family, ModelSection, Section, TaskType

PlugIn = TypeVar("PlugIn", covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[PlugIn]):
    """A kind of plug-in: the folder of `attune` that has them, and the name under which a module exports one."""

    folder: str  # also the entry points' group, after `attune.`
    export: str

    @property
    def noun(self) -> str:
        """What one of them is called."""
        several = self.folder.rsplit(".", 1)[-1]
        return {"families": "family", "corpora": "corpus"}.get(several, several.removesuffix("s"))


FAMILIES: Kind[Family[ModelSection]] = Kind("families", "FAMILY")
TASKS: Kind[TaskType[Section]] = Kind("tasks", "TASK")
NORMALIZERS: Kind[Callable[[str], str]] = Kind("text.normalizers", "NORMALIZER")


def names(kind: Kind[object]) -> list[str]:
    """The names of all plug-ins of a kind, in the package and from entry points."""
    package = importlib.util.find_spec(f"attune.{kind.folder}")
    folders = package.submodule_search_locations if package else []
    own = [module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")]
    return sorted({*own, *offered(kind).names})


def offered(kind: Kind[object]) -> EntryPoints:
    """The plug-ins of a kind that installed packages bring."""
    return _offered(kind.folder, tuple(sys.path))


@cache
def _offered(folder: str, path: tuple[str, ...]) -> EntryPoints:
    # All packages on the path are read for it, which takes tens of milliseconds.
    return entry_points(group=f"attune.{folder}")


def find(kind: Kind[PlugIn], name: str) -> PlugIn:
    """The object that plug-in `name` exports; an unknown name is answered with the nearest one."""
    found: PlugIn
    for point in offered(kind).select(name=name):
        found = point.load()
        return found
    if name in names(kind):
        found = getattr(importlib.import_module(f"attune.{kind.folder}.{name}"), kind.export)
        return found
    if name.endswith(".py"):
        return _of_file(kind, Path(name))
    if "." in name and all(part.isidentifier() for part in name.split(".")):
        return _out_of_tree(kind, name)
    is_file = Path(f"{name}.py").is_file()
    hint = f"; for the file of that name, write ./{name}.py" if is_file else suggestion(name, names(kind))
    raise ConfigError(f"Unknown {kind.noun} {name!r}{hint}")


def own_name(name: str) -> str:
    """What a plug-in is called, however it was named: `count_words` is that of `my_tasks.count_words` and of a file."""
    return Path(name).stem if name.endswith(".py") else name.rpartition(".")[2]


def suggestion(name: str, known: Iterable[str]) -> str:
    """A did-you-mean to append to a message: the nearest name, or the list of all."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f" (known: {', '.join(known)})" if known else ""


def _out_of_tree(kind: Kind[PlugIn], name: str) -> PlugIn:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"No module {error.name!r} for the plug-in {name!r}. Install its package.") from error
    found: PlugIn | None = getattr(module, kind.export, None)
    if found is None:
        raise ConfigError(f"Module {name!r} does not export {kind.export}.")
    return found


def _of_file(kind: Kind[PlugIn], path: Path) -> PlugIn:
    """What a file exports. It is run once in a process, and only because somebody wrote its path."""
    if not path.is_file():
        raise ConfigError(f"No file {path} for the {kind.noun}. Paths begin at the folder of the command.")
    name = f"{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{path} is not a Python file.")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    found: PlugIn | None = getattr(sys.modules[name], kind.export, None)
    if found is None:
        hint = f" It is an upstream: set model.family=ssl and model.upstream={path}." if _is_upstream(name) else ""
        raise ConfigError(f"{path} does not export {kind.export}.{hint}")
    return found


def _is_upstream(module: str) -> bool:
    return "UPSTREAM" in vars(sys.modules[module])


def shipped_recipes() -> dict[str, Path]:
    """The recipes of the package, by the names that stand for them."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.yaml"))}


def recipe_path(named: Path) -> Path:
    """The recipe file that is meant: a path as it is, a run's or a model's own, or a shipped one, such as `demo`."""
    if (named / "recipe.yaml").is_file():
        return named / "recipe.yaml"
    if named.exists() or named.suffix or len(named.parts) != 1:
        return named
    known = shipped_recipes()
    if named.name not in known:
        raise ConfigError(f"There is no file and no shipped recipe {named.name!r}{suggestion(named.name, known)}")
    return known[named.name]
