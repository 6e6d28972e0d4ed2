"""YAML as plain data: read into nodes with line numbers, written back as text.

No tag is ever executed, and aliases cannot grow without bound. A plain scalar stays the text that was written; only
`null`, `~` and nothing at all are None. What is wrong is kept with its place, to be raised all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TypeAlias

import yaml

from attune.catalog import suggestion
from attune.errors import ConfigError

Plain: TypeAlias = "str | float | bool | list[Plain] | dict[str, Plain] | None"

MAX_BYTES = 1_000_000  # what is larger is a manifest or a model given by mistake
MAX_VALUES = 10_000
OVERRIDE = "override"

MAX_DATA_VALUES = 500_000  # of others' files, which list whole vocabularies

_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map")}
_DATA_TAGS = _PLAIN_TAGS | {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null")}


@dataclass(frozen=True, slots=True)
class Node:
    """A value as written, and where: `recipes/x.yaml:12` (the line of its key), or `override`."""

    value: str | tuple[Node, ...] | Mapping[str, Node] | None
    where: str

    def entries(self) -> Mapping[str, Node]:
        """The keys of a section; none when this is a scalar or a list."""
        return self.value if isinstance(self.value, Mapping) else {}

    def find(self, key: str) -> Node | None:
        """The value of a dotted key, if it was written."""
        node: Node | None = self
        for name in key.split("."):
            node = node.entries().get(name) if node else None
        return node

    def nearest(self, key: str) -> str:
        """The place to point at for a dotted key: its own, or that of the section it would stand in."""
        node = self
        for name in key.split("."):
            node = node.entries().get(name, node)
        return node.where

    def without(self, key: str) -> Node:
        """The same section, less one key, which may be dotted."""
        first, _, rest = key.partition(".")
        kept = {name: child for name, child in self.entries().items() if name != first}
        if rest and (inner := self.entries().get(first)):
            kept[first] = inner.without(rest)
        return Node(kept, self.where)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One problem, as one line of a message."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


@dataclass(slots=True)
class Problems:
    """All problems so far, to be raised together."""

    found: list[ConfigProblem] = field(default_factory=list)

    def add(self, where: str, key: str, message: str) -> None:
        """Keep a problem for later."""
        self.found.append(ConfigProblem(where, key, message))

    def raise_all(self) -> None:
        """Raise one ConfigError with every problem on its own line, by file and line; nothing when there is none."""
        if self.found:
            raise ConfigError("\n".join(map(str, sorted(self.found, key=_file_and_line))))


def read_file(path: Path, problems: Problems) -> Node | None:
    """The keys and values of a YAML file, or None when it cannot be read at all."""
    text = _text(path, problems)
    root = None if text is None else _read(text, lambda line: f"{path}:{line}", problems)
    if root is None:
        return None
    if not isinstance(root.value, Mapping):
        problems.add(root.where, "", f"expected `key: value` lines, found {describe(root)}")
        return None
    return Node(root.value, str(path))


def read_overrides(overrides: Sequence[str], problems: Problems) -> Node:
    """`section.key=value` settings as one tree; a value is written as it would be inside `[…]` or `{…}` in YAML."""
    trees = [_read_override(override, problems) for override in overrides]
    return reduce(merge, trees, Node({}, OVERRIDE))


def read_data(text: str, where: str) -> Plain:
    """Others' YAML as plain values of the types that YAML gives them: no other tag, and no flood of aliases."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _require_data(root)
        data: Plain = loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not plain YAML: {' '.join(str(error).split())}") from error
    return data


def write_data(data: Mapping[str, Plain]) -> str:
    """Plain values as YAML that every reader takes for the same."""
    text: str = yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=float("inf"))
    return text


def merge(under: Node, over: Node) -> Node:
    """`under` with what `over` says put on top: sections are merged, everything else is replaced."""
    if not (isinstance(under.value, Mapping) and isinstance(over.value, Mapping)):
        return over
    both = {key: merge(under.value[key], child) if key in under.value else child for key, child in over.value.items()}
    # What is missing from a section is missing from a file, even when an override touched it last.
    return Node({**under.value, **both}, under.where if over.where == OVERRIDE else over.where)


def join(key: str, name: str) -> str:
    """The dotted key of `name` in the section `key`; the outermost section has no key."""
    return f"{key}.{name}" if key else name


def describe(node: Node) -> str:
    """What a user wrote, in the words of a message."""
    match node.value:
        case None:
            return "nothing"
        case str(text):
            return repr(text if len(text) <= 60 else f"{text[:60]}…")
        case tuple(items):
            return f"a list of {len(items)}"
        case _:
            return "keys and values"


def yaml_lines(plain: Mapping[str, Plain], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The lines of a YAML file, each with the dotted key that it sets; the heading of a section sets none."""
    indent = "  " * prefix.count(".")
    for key, value in plain.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{inline_yaml(key)}:", ""
            yield from yaml_lines(value, f"{prefix}{key}.")
        else:
            yield f"{indent}{inline_yaml(key)}: {inline_yaml(value)}", f"{prefix}{key}"


def inline_yaml(value: Plain) -> str:
    """A plain value on one line of YAML, to be read back by this module, and by any other reader, as the same."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return value if _is_plain(value) else _quoted(value)
        case list():
            return f"[{', '.join(map(inline_yaml, value))}]"
        case dict():
            return f"{{{', '.join(f'{inline_yaml(key)}: {inline_yaml(child)}' for key, child in value.items())}}}"
        case _:
            return repr(value)


def _require_data(root: yaml.Node) -> None:
    """Refuse what is not a plain value, and what grows beyond all bounds once its aliases are spelled out."""
    waiting, count = [root], 0
    while waiting:
        node, count = waiting.pop(), count + 1
        if node.tag not in _DATA_TAGS or count > MAX_DATA_VALUES:
            problem = "too many values" if count > MAX_DATA_VALUES else f"tag {node.tag} is not allowed"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _file_and_line(problem: ConfigProblem) -> tuple[str, int]:
    file, _, line = problem.where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (problem.where, 0)


def _text(path: Path, problems: Problems) -> str | None:
    try:
        if path.stat().st_size > MAX_BYTES:
            problems.add(str(path), "", f"more than {MAX_BYTES:,} bytes: not a recipe or settings file")
            return None
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        problems.add(str(path), "", f"no such file{suggestion(path.name, _siblings(path))}")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.add(f"{path}:{line}", "", "not UTF-8 text: not a recipe or settings file")
    except OSError as error:
        problems.add(str(path), "", f"cannot be read: {error.strerror}")
    return None


def _siblings(path: Path) -> list[str]:
    return [sibling.name for sibling in path.parent.glob(f"*{path.suffix}")] if path.suffix else []


def _read(text: str, locate: Callable[[int], str], problems: Problems) -> Node | None:
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        if root is None:
            problems.add(locate(1), "", "the file is empty")
            return None
        return _Converter(locate, problems).node(root, "")
    except yaml.MarkedYAMLError as error:
        problems.add(locate(_line(error.problem_mark)), "", _syntax_message(error))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.add(locate(line), "", f"bad YAML: character {text[error.position]!r} is not allowed")
    except RecursionError:
        problems.add(locate(1), "", "nested too deeply")
    return None


def _read_override(override: str, problems: Problems) -> Node:
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        problems.add(OVERRIDE, "", f"expected section.key=value, found {override!r}")
        return Node({}, OVERRIDE)
    tree = _read_override_value(key, text, problems)
    if tree is None:
        return Node({}, OVERRIDE)
    for name in reversed(key.split(".")):
        tree = Node({name: tree}, OVERRIDE)
    return tree


def _read_override_value(key: str, text: str, problems: Problems) -> Node | None:
    own = Problems()
    # Inside brackets a value is what it would be in a recipe's `{key: value}`, and nothing can be a block.
    items = _read(f"[{text}\n]", lambda _: OVERRIDE, own)
    values = items.value if items and isinstance(items.value, tuple) else ()
    if len(values) > 1:
        own.add(OVERRIDE, key, f"expected one value, found {text!r}; write a list as [{text}]")
    for problem in own.found:
        problems.add(OVERRIDE, key, problem.message)
    if own.found:
        return None
    return values[0] if values else Node(None, OVERRIDE)


class _Converter:
    """Composed YAML to Nodes; counts what aliases expand to."""

    def __init__(self, locate: Callable[[int], str], problems: Problems) -> None:
        self.locate = locate
        self.problems = problems
        self.count = 0

    def node(self, node: yaml.Node, key: str, where: str = "") -> Node:
        self.count += 1
        if self.count > MAX_VALUES:
            message = f"more than {MAX_VALUES:,} values, aliases expanded"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)
        where = where or self.locate(_line(node.start_mark))
        self.refuse_tag(node, key, where)
        if isinstance(node, yaml.MappingNode):
            return Node(self.section(node, key), where)
        if isinstance(node, yaml.SequenceNode):
            return Node(tuple(self.node(child, f"{key}[{index}]") for index, child in enumerate(node.value)), where)
        return Node(None if _is_null(node) else node.value, where)

    def section(self, node: yaml.MappingNode, key: str) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for name, child in node.value:
            where = self.locate(_line(name.start_mark))
            if not isinstance(name, yaml.ScalarNode):
                self.problems.add(where, key, "a key must be a word")
                continue
            child_key = join(key, name.value)
            self.refuse_tag(name, child_key, where)
            if name.value in entries:
                self.problems.add(where, child_key, f"already given at {entries[name.value].where}")
            entries[name.value] = self.node(child, child_key, where)
        return entries

    def refuse_tag(self, node: yaml.Node, key: str, where: str) -> None:
        if node.tag not in _PLAIN_TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self.problems.add(where, key, f"tag {tag} is not allowed: settings are plain values, nothing is executed")


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in ("", "~", "null")


def _line(mark: yaml.Mark | None) -> int:
    return mark.line + 1 if mark else 1


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    if "'\\t'" in (error.problem or ""):
        return "tabs are not allowed in YAML indentation; use spaces"
    began = _line(error.context_mark)
    context = f" ({error.context}, begun at line {began})" if error.context and error.context_mark else ""
    return f"bad YAML: {error.problem}{context}"


def _is_plain(text: str) -> bool:
    try:
        return bool(yaml.safe_load(f"[{text}]") == [text])
    except (yaml.YAMLError, ValueError):  # ValueError: 2024-99-99 looks like a date
        return False


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=float("inf")).rstrip("\n")
