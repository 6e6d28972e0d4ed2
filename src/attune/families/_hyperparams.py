"""HyperPyYAML as inert data: tags are kept as text, `!ref` is resolved, and nothing is imported, called or included.

What a file would run or read while it is loaded (`!apply:`, `!include:`, YAML's own `!!python/…`) is refused by name;
seeding, which changes nothing here, is passed over.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from attune.errors import ModelError

YAML = "tag:yaml.org,2002:"
PLAIN = tuple(YAML + name for name in ("str", "seq", "map", "int", "float", "bool", "null", "merge", "timestamp"))
MAX_BYTES = 1_000_000
MAX_VALUES = 20_000
MAX_DEPTH = 40  # of references that lead to references
MAX_TEXT = 10_000
MAX_POWER = 64
MAX_NUMBER = 10**15
REFERENCE = re.compile(r"<([^<>]+)>")
INERT = ("!new:", "!name:", "!module:", "!ref", "!copy", "!tuple", "!PLACEHOLDER")
OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
SEEDING = ("!apply:torch.manual_seed", "!apply:numpy.random.seed", "!apply:speechbrain.utils.seed_everything")


@dataclass(frozen=True, slots=True)
class Tagged:
    """What a tag would make: the name of a class or function, and what it would be given."""

    tag: str  # !new:speechbrain.lobes.models.CRDNN.CRDNN
    value: Value

    @property
    def name(self) -> str:
        """The last part of what the tag names."""
        return self.tag.rpartition(":")[2].rpartition(".")[2]


Value: TypeAlias = "str | int | float | bool | Tagged | tuple[Value, ...] | dict[str, Value] | None"


@dataclass(frozen=True, slots=True)
class Hyperparams:
    """The keys of a hyperparams.yaml; `get` resolves what they refer to."""

    path: Path
    root: dict[str, Value]

    def get(self, key: str) -> Value:
        """The value of a dotted key with its references resolved, or None."""
        return _Resolver(self).resolve(self.raw(key), 0)

    def arguments(self, key: str) -> dict[str, Value]:
        """What the object of a key would be made with; empty where there is no such key."""
        found = self.get(key)
        value = found.value if isinstance(found, Tagged) else found
        return value if isinstance(value, dict) else {}

    def name(self, key: str) -> str:
        """What the object of a key would be: the last part of its class's name, or nothing."""
        found = self.get(key)
        return found.name if isinstance(found, Tagged) else ""

    def key_of(self, value: Value) -> str:
        """The key that a reference leads to in the end, or nothing."""
        key = ""
        for _ in range(MAX_DEPTH):
            match value:
                case Tagged(tag="!ref" | "!copy", value=str(text)) if whole := REFERENCE.fullmatch(text.strip()):
                    key, value = whole[1], self.raw(whole[1])
                case _:
                    break
        return key

    def first_of(self, *kinds: str) -> str:
        """The first key with an object of one of these kinds, or nothing."""
        made = (key for key, value in self.root.items() if isinstance(value, Tagged) and value.tag.startswith("!new:"))
        return next((key for key in made if self.name(key) in kinds), "")

    def raw(self, key: str) -> Value:
        """What stands at `a.b` or, as HyperPyYAML writes it, `a[b]`: references as they are, or None."""
        value: Value = self.root
        for part in re.split(r"[.\[]", key.replace("]", "")):
            value = value.value if isinstance(value, Tagged) else value
            value = value.get(part) if isinstance(value, dict) else None
        return value


class _Resolver:
    """References to values, a bounded number of them: references to references could grow without end."""

    def __init__(self, params: Hyperparams) -> None:
        self.params, self.left = params, MAX_VALUES

    def resolve(self, value: Value, depth: int) -> Value:
        """The value with what its references name in their place."""
        self.left -= 1
        if self.left < 0:
            raise ModelError(f"{self.params.path} is refused: its references lead to more than {MAX_VALUES:,} values.")
        if depth > MAX_DEPTH:
            raise ModelError(f"{self.params.path} is refused: one of its references refers to itself.")
        match value:
            case Tagged(tag="!ref" | "!copy", value=str(text)):
                return self._reference(text, depth + 1)
            case Tagged(tag="!tuple", value=str(text)):
                return _scalar(text)
            case Tagged():
                return Tagged(value.tag, self.resolve(value.value, depth + 1))
            case dict():
                return {key: self.resolve(child, depth + 1) for key, child in value.items()}
            case tuple():
                return tuple(self.resolve(child, depth + 1) for child in value)
        return value

    def _reference(self, text: str, depth: int) -> Value:
        whole = REFERENCE.fullmatch(text.strip())
        if whole:
            return self._named(whole[1], depth)
        # A path or a sum with references in it: plain values are put in.
        filled = REFERENCE.sub(lambda match: str(self._named(match[1], depth)), text)
        if len(filled) > MAX_TEXT:
            raise ModelError(
                f"{self.params.path} is refused: one of its references has more than {MAX_TEXT:,} characters."
            )
        return _computed(filled)

    def _named(self, key: str, depth: int) -> Value:
        first = re.split(r"[.\[]", key)[0]
        if first not in self.params.root:
            raise ModelError(f"{self.params.path} refers to <{key}>, but has no {first}.")
        return self.resolve(self.params.raw(key), depth)


def _computed(text: str) -> Value:
    """The number that a sum of plain numbers comes to; any other text as it is."""
    try:
        return _number(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, ArithmeticError, MemoryError, RecursionError):
        return text


def _number(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub()):
            return -_number(node.operand)
        case ast.BinOp() if type(node.op) in OPERATORS:
            left, right = _number(node.left), _number(node.right)
            if isinstance(node.op, ast.Pow) and max(abs(left), abs(right)) > MAX_POWER:
                raise ValueError("too large a power")
            value = OPERATORS[type(node.op)](left, right)
            if isinstance(value, int | float) and abs(value) <= MAX_NUMBER:
                return value
    raise ValueError("no sum of numbers")


def read_hyperparams(path: Path) -> Hyperparams:
    """The file's keys and values; no tag is executed."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"{path} has more than {MAX_BYTES:,} bytes: too large for a hyperparams.yaml.")
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"Cannot read {path} as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(root, yaml.MappingNode):
        raise ModelError(f"{path} has no `key: value` lines.")
    # SpeechBrain writes a file without !ref into a run's folder: there, objects are shared by aliases.
    shared = {id(child): str(key.value) for key, child in reversed(root.value) if not child.tag.startswith(PLAIN)}
    converter = _Converter(path, shared)
    return Hyperparams(path, {str(key.value): converter.convert(child) for key, child in root.value})


class _Converter:
    """Nodes to values, a bounded number of them: aliases could grow without end."""

    def __init__(self, path: Path, shared: Mapping[int, str]) -> None:
        self.path, self.shared, self.left = path, shared, MAX_VALUES

    def convert(self, node: yaml.Node) -> Value:
        """A node as a value; tags other than YAML's own are kept."""
        self.left -= 1
        if self.left < 0:
            raise ModelError(f"{self.path} is refused: it has more than {MAX_VALUES:,} values.")
        try:
            value = self._value(node)
        except RecursionError as error:
            raise ModelError(f"{self.path} is refused: its values are nested too deeply.") from error
        if node.tag.startswith(PLAIN):
            return value
        self._require_inert(node)
        return Tagged(node.tag, value)

    def _require_inert(self, node: yaml.Node) -> None:
        tag = node.tag.replace(YAML, "!!")
        if node.tag.startswith(INERT) or tag in SEEDING:
            return
        raise ModelError(
            f"{self.path}:{node.start_mark.line + 1}: {tag} is refused: it would run code or read a file. Nothing was "
            "run or read. Remove the line if the model does not need it."
        )

    def _inner(self, node: yaml.Node) -> Value:
        """A value within another: an object that has a key of its own becomes a reference to that."""
        key = self.shared.get(id(node))
        return self.convert(node) if key is None else Tagged("!ref", f"<{key}>")

    def _value(self, node: yaml.Node) -> Value:
        if isinstance(node, yaml.MappingNode):
            return {str(key.value): self._inner(child) for key, child in node.value}
        if isinstance(node, yaml.SequenceNode):
            return tuple(self._inner(child) for child in node.value)
        is_plain = isinstance(node, yaml.ScalarNode) and node.tag.startswith(PLAIN) and node.style is None
        return _scalar(str(node.value)) if is_plain else str(node.value)


def _scalar(text: str) -> Value:
    """A number, a truth value, a tuple in parentheses, or text."""
    if text.lower() in ("true", "false", "yes", "no"):
        return text.lower() in ("true", "yes")
    if text.lower() in ("", "null", "~", "none"):
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, int | float | tuple) else text
