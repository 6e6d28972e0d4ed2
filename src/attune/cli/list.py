"""List plug-ins (families, upstreams, tasks, normalizers, sources, corpora) and the shipped recipes."""

from __future__ import annotations

import ast
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, print_json

if TYPE_CHECKING:
    from attune.catalog import Kind

HELP = "list families, upstreams, tasks, normalizers, sources, corpora and shipped recipes"
EXAMPLE = "attune list tasks"

RECIPES, TASKS = "recipes", "tasks"
KINDS = ("families", "upstreams", TASKS, "normalizers", "sources", "corpora")  # `attune --help` imports none of them


def add_arguments(parser: ArgumentParser) -> None:
    """Take the kind to list, and --json."""
    parser.add_argument("what", nargs="?", choices=[*KINDS, RECIPES], help="list this kind only")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print each name with its description."""
    kinds = _kinds()
    wanted = [arguments.what] if arguments.what else [*kinds, RECIPES]
    found = {what: _recipes() if what == RECIPES else _plug_ins(kinds[what]) for what in wanted}
    metrics = _metrics(found[TASKS]) if arguments.what == TASKS else {}  # a list of everything imports no task
    if arguments.json:
        print_json({**found, **({"metrics": metrics} if metrics else {})})
    else:
        tables = [_table(what, entries) for what, entries in found.items()]
        print("\n\n".join([*tables, *(_table(f"metrics of {task}", _lines(own)) for task, own in metrics.items())]))
    return 0


def _metrics(tasks: Iterable[str]) -> dict[str, list[dict[str, object]]]:
    """The metrics that each task declares, the primary one first; those of a broken plug-in stay unknown."""
    from attune import catalog
    from attune.errors import AttuneError

    metrics: dict[str, list[dict[str, object]]] = {}
    for name in tasks:
        with suppress(AttuneError, ImportError):
            metrics[name] = [asdict(metric) for metric in catalog.find(catalog.TASKS, name).metrics]
    return metrics


def _lines(metrics: Iterable[Mapping[str, object]]) -> dict[str, str]:
    return {str(metric["name"]): _describe(metric) for metric in metrics}


def _describe(metric: Mapping[str, object]) -> str:
    direction = "higher is better" if metric["higher_is_better"] else "lower is better"
    return f"{metric['description']} ({', '.join(filter(None, (str(metric['unit']), direction)))})"


def _kinds() -> dict[str, Kind[object]]:
    """The kinds of plug-ins by their names on the command line: `normalizers` for `text.normalizers`."""
    from attune import catalog
    from attune.corpora import CORPORA
    from attune.families.ssl.upstream import UPSTREAMS
    from attune.sources import SOURCES

    kinds = (catalog.FAMILIES, UPSTREAMS, catalog.TASKS, catalog.NORMALIZERS, SOURCES, CORPORA)
    return dict(zip(KINDS, kinds, strict=True))


def _plug_ins(kind: Kind[object]) -> dict[str, str]:
    from attune import catalog

    modules = {name: f"attune.{kind.folder}.{name}" for name in catalog.names(kind)}
    modules |= {point.name: point.module for point in catalog.offered(kind)}
    return {name: _first_line(module) for name, module in modules.items()}


def _first_line(module: str) -> str:
    """The first line of a module's docstring, read from its source, so that no model is imported."""
    from importlib.util import find_spec

    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def _recipes() -> dict[str, str]:
    """The shipped recipes by name, each with its first comment."""
    from attune.catalog import shipped_recipes

    return {name: _first_comment(path) for name, path in shipped_recipes().items()}


def _first_comment(path: Path) -> str:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ") if first.startswith("#") else ""


def _table(what: str, entries: dict[str, str]) -> str:
    width = max(map(len, entries), default=0)
    lines = [f"  {name:{width}}  {description}".rstrip() for name, description in entries.items()]
    return "\n".join([f"{what}:", *(lines or ["  none"])])
