"""HyperPyYAML as inert data: tags are kept as text, `!ref` is resolved, and nothing is imported, called or included.

What a file would run or read while it is loaded (`!apply:`, `!include:`, YAML's own `!!python/…`) is refused by name;
seeding, which changes nothing here, is passed over.
"""

from __future__ import annotations

import ast
import re
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
REFERENCE = re.compile(r"<([^<>]+)>")
INERT = ("!new:", "!name:", "!module:", "!ref", "!copy", "!tuple", "!PLACEHOLDER")
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
        return self._resolve(self._raw(key), 0)

    def arguments(self, key: str) -> dict[str, Value]:
        """What the object of a key would be made with; empty where there is no such key."""
        found = self.get(key)
        value = found.value if isinstance(found, Tagged) else found
        return value if isinstance(value, dict) else {}

    def name(self, key: str) -> str:
        """What the object of a key would be: the last part of its class's name, or nothing."""
        found = self.get(key)
        return found.name if isinstance(found, Tagged) else ""

    def _raw(self, key: str) -> Value:
        value: Value = self.root
        for part in key.split("."):
            value = value.value if isinstance(value, Tagged) else value
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def _resolve(self, value: Value, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise ModelError(f"{self.path} is refused: one of its references refers to itself.")
        match value:
            case Tagged(tag="!ref", value=str(text)):
                return self._reference(text, depth + 1)
            case Tagged():
                return Tagged(value.tag, self._resolve(value.value, depth + 1))
            case dict():
                return {key: self._resolve(child, depth + 1) for key, child in value.items()}
            case tuple():
                return tuple(self._resolve(child, depth + 1) for child in value)
        return value

    def _reference(self, text: str, depth: int) -> Value:
        whole = REFERENCE.fullmatch(text.strip())
        if whole:
            return self._resolve(self._raw(whole[1]), depth)
        # A path or a sum with references in it: kept as text, with plain values put in.
        return REFERENCE.sub(lambda match: str(self._resolve(self._raw(match[1]), depth)), text)


def read_hyperparams(path: Path) -> Hyperparams:
    """The file's keys and values; no tag is executed."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"{path} has more than {MAX_BYTES:,} bytes: too large for a hyperparams.yaml.")
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"Cannot read {path} as YAML: {' '.join(str(error).split())}") from error
    converted = _Converter(path).convert(root) if root else None
    if not isinstance(converted, dict):
        raise ModelError(f"{path} has no `key: value` lines.")
    return Hyperparams(path, converted)


class _Converter:
    """Nodes to values, a bounded number of them: aliases could grow without end."""

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, MAX_VALUES

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

    def _value(self, node: yaml.Node) -> Value:
        if isinstance(node, yaml.MappingNode):
            return {str(key.value): self.convert(child) for key, child in node.value}
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.convert(child) for child in node.value)
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
