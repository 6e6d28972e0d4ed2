"""Holds the package to its shape: imports point down only, and some words are not used.

The rows are those of the architecture, highest first. A room may import rooms of lower rows. Rooms of one row that are
joined by `|` do not know one another; those joined by a space do. `testing` may see everything and nothing sees it.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import attune

PACKAGE = Path(attune.__file__).parent

ROWS = """
    __main__
    cli
    serve
    __init__ api recognizer recordings transcripts live live_scores display transfers styles
    launch
    analysis | studies | publishing
    stages
    loading
    recipe recipe_keys site run run_report lease run_store run_mirror
    training | decoding | report | streaming
    families | tasks
    corpora | batches
    sources | audio | text | scoring | kernels
    stored_tensors
    errors secrets catalog config contracts metrics plain_yaml roles scorers seeds tensor_files trust types world files
    processes
"""
APART = "|"
MOST_LINES = 400
FORBIDDEN_CALLS = {"hasattr", "eval", "exec"}


def rooms_below() -> dict[str, set[str]]:
    """What each room may import: everything in lower rows, itself, and its neighbours where the row has no `|`."""
    allowed: dict[str, set[str]] = {}
    below: set[str] = set()
    for row in reversed(ROWS.strip().splitlines()):
        rooms = set(row.replace(APART, " ").split())
        for room in rooms:
            allowed[room] = below | ({room} if APART in row else rooms)
        below |= rooms
    allowed["testing"] = below | {"testing"}
    return allowed


def room_of(module: str) -> str:
    """`attune.audio.decode` is in the room `audio`; the package itself is `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def modules_of(package: Path) -> dict[str, ast.Module]:
    """Every module under a folder, by its dotted name, parsed."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join([package.name, *(parts[:-1] if parts[-1] == "__init__" else parts)])
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def is_for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that can run: all but what stands under `if TYPE_CHECKING`."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and is_for_types_only(child):
            for other in child.orelse:
                yield from running_nodes(other)
        else:
            yield from running_nodes(child)


def imported_by(tree: ast.Module, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Line and name of every module of the package that a module imports, anywhere in it."""
    package = min(modules, key=len)
    for node in running_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == package)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                yield node.lineno, "a relative import"
            elif source.split(".")[0] == package:
                for alias in node.names:
                    name = f"{source}.{alias.name}"
                    yield node.lineno, name if name in modules else source


def misplaced_imports(package: Path) -> list[str]:
    """Imports that point up or sideways, as `module:line imports module`."""
    modules, allowed = modules_of(package), rooms_below()
    wrong = []
    for name, tree in modules.items():
        for line, imported in imported_by(tree, set(modules)):
            if imported not in modules or room_of(imported) not in allowed.get(room_of(name), set()):
                wrong.append(f"{name}:{line} imports {imported}")
    return wrong


def import_cycle(package: Path) -> list[str]:
    """Modules that import one another, in whatever part of them; empty where there are none."""
    modules = modules_of(package)
    graph = {
        name: {imported for _, imported in imported_by(tree, set(modules)) if imported in modules} - {package.name}
        for name, tree in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def frowned_on(package: Path) -> list[str]:
    """Words and shapes that the package does without, as `module:line what`."""
    return [
        f"{name}:{getattr(node, 'lineno', 0)} {what}"
        for name, tree in modules_of(package).items()
        for node in ast.walk(tree)
        if (what := complaint(node, may_print=room_of(name) == "cli"))
    ]


def complaint(node: ast.AST, may_print: bool) -> str:
    match node:
        case ast.Assert():
            return "assert"
        case ast.Global():
            return "global"
        case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS or (name == "print" and not may_print):
            return f"{name}()"
        case ast.FunctionDef(returns=None, name=name) | ast.AsyncFunctionDef(returns=None, name=name):
            return f"{name} does not say what it returns"
    return ""


def test_imports_point_down_only():
    assert misplaced_imports(PACKAGE) == []


def test_no_module_imports_one_that_imports_it():
    assert import_cycle(PACKAGE) == []


def test_an_import_in_a_function_closes_a_cycle_too(tmp_path):
    package = house(tmp_path, run="def f() -> None:\n    from attune import site", site="from attune import run")
    assert sorted(set(import_cycle(package))) == ["attune.run", "attune.site"]


def test_every_room_has_a_place_in_the_house():
    rooms = {room_of(module) for module in modules_of(PACKAGE)}
    assert rooms - rooms_below().keys() == set()


def test_the_package_does_without_the_words_it_does_without():
    assert frowned_on(PACKAGE) == []


def test_modules_are_short_enough_to_read():
    lengths = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def house(folder: Path, **modules: str) -> Path:
    """A made-up package of the given modules; `audio__decode` is audio/decode.py."""
    package = folder / "attune"
    for name in ("__init__", *modules):
        path = package / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(modules.get(name, ""))
    return package


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("audio__decode", "from attune.stages import train"),
        ("audio__decode", "import attune.stages.train"),
        ("audio__decode", "from attune.text.words import spell"),
        ("audio__decode", "def f():\n    from attune import recipe"),
        ("audio__decode", "if x:\n    from attune.recipe import load"),
        ("audio__decode", "from attune import load"),
        ("audio__decode", "from . import words"),
        ("families__ssl", "from attune.tasks.transcribe import TASK"),
        ("errors", "from attune.audio.decode import read"),
        ("stages__train", "from attune.testing.data import tone"),
        ("nowhere", "from attune.errors import AttuneError"),
    ],
)
def test_an_import_that_points_elsewhere_is_found(importer, line, tmp_path):
    rooms = dict.fromkeys(
        ("audio__decode", "text__words", "stages__train", "tasks__transcribe", "testing__data", "recipe", "errors"), ""
    )
    package = house(tmp_path, **{**rooms, importer: line})
    assert len(misplaced_imports(package)) == 1


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("audio__decode", "from attune.errors import AttuneError"),
        ("audio__decode", "from attune.audio.features import fbank"),
        ("audio__decode", "if TYPE_CHECKING:\n    from attune.recipe import Recipe"),
        ("audio__decode", "import attune_elsewhere, torch"),
        ("run", "from attune import recipe"),
        ("testing__data", "from attune.stages.train import train"),
        ("cli__train", "from attune import api"),
    ],
)
def test_an_import_that_points_down_is_left_alone(importer, line, tmp_path):
    rooms = dict.fromkeys(("audio__decode", "audio__features", "stages__train", "recipe", "errors", "api"), "")
    package = house(tmp_path, **{**rooms, importer: line})
    assert misplaced_imports(package) == []


@pytest.mark.parametrize(
    "line",
    [
        "assert x",
        "hasattr(x, 'y')",
        "eval('1')",
        "exec('1')",
        "def f() -> None:\n    global x",
        "print(1)",
        "def f(): ...",
    ],
)
def test_a_frowned_on_word_is_found(line, tmp_path):
    assert len(frowned_on(house(tmp_path, audio__decode=line))) == 1


def test_only_the_command_line_prints(tmp_path):
    assert frowned_on(house(tmp_path, cli__train="print(1)")) == []
