"""Typed settings from YAML: text with line numbers in, frozen dataclasses out, every problem at once.

YAML is data here: no tag is ever executed, and aliases cannot grow without bound. A plain scalar stays the text that
was written until a declared type says what it means, so `language: no` is Norwegian and `lr: 1e-4` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from itertools import groupby
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from attune.catalog import suggestion
from attune.plain_yaml import Node, Plain, Problems, describe, join

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

REQUIRED = "required, but missing"

# Pydantic's errors in the words of somebody who writes YAML.
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "text at least {min_length} long",
    "string_pattern_mismatch": "text that matches {pattern}",
    "tuple_type": "a list",
    "dict_type": "keys and values",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "missing": "a longer list",
    "literal_error": "{expected}",
}

T = TypeVar("T")
Reader = Callable[[Node, str, Problems], Any]


def parse(node: Node, kind: type[T], problems: Problems, key: str = "") -> T | None:
    """The dataclass `kind` that `node` describes, or None and why in `problems`.

    Fields may be scalars, Literals of text, tuples or mappings of these, another dataclass, and any of them or None.
    A ValueError from `__post_init__` is a problem of the whole section.
    """
    before = len(problems.found)
    values = parse_fields(node, kind, problems, key)
    if len(problems.found) > before:
        return None
    try:
        return kind(**values)
    except ValueError as error:
        problems.add(node.where, key, str(error))
        return None


def parse_fields(
    node: Node, kind: type, problems: Problems, key: str = "", readers: Mapping[str, Reader] | None = None
) -> dict[str, Any]:
    """The fields of `kind` that `node` gives and that are right; `readers` read the keys that only the caller can."""
    if not is_section(node, key, problems):
        return {}
    known = {each.name: each for each in fields(kind) if each.init}
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for name, child in node.entries().items():
        if name not in known:
            problems.add(child.where, join(key, name), f"unknown key{suggestion(name, known)}")
            continue
        before = len(problems.found)
        read = (readers or {}).get(name) or partial(_parse_value, hints[name])
        value = read(child, join(key, name), problems)
        if len(problems.found) == before:
            values[name] = value
    for name in _required(known.values()):
        if name not in node.entries():
            problems.add(node.where, join(key, name), REQUIRED)
    return values


def is_section(node: Node, key: str, problems: Problems) -> bool:
    """Whether a node has keys and values; a problem when it has not."""
    if not isinstance(node.value, Mapping):
        problems.add(node.where, key, f"expected keys and values, found {describe(node)}")
        return False
    return True


def to_plain(value: object) -> Plain:
    """Dataclasses as dicts, tuples as lists, anything but numbers as text: what YAML and JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        return section_to_plain(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(child) for key, child in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(child) for child in value]
    return value if isinstance(value, (int, float, NoneType)) else str(value)


def section_to_plain(section: DataclassInstance) -> dict[str, Plain]:
    """A dataclass as a dict, every default written."""
    return {each.name: to_plain(getattr(section, each.name)) for each in fields(section)}


def flatten(plain: Mapping[str, Plain], prefix: str = "") -> dict[str, Plain]:
    """Nested plain sections as one dict by dotted key."""
    flat: dict[str, Plain] = {}
    for key, value in plain.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return flat


def json_schemas(kinds: Mapping[str, type]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON schema of each dataclass by the given name, and the definitions that these refer to.

    Nothing is marked as required, because a file may take the rest from another; unknown keys are refused.
    """
    schemas, shared = TypeAdapter.json_schemas(
        [(name, "validation", TypeAdapter(kind)) for name, kind in kinds.items()], ref_template="#/$defs/{model}"
    )
    definitions = shared.get("$defs", {})
    for definition in definitions.values():
        definition.pop("required", None)
        definition["additionalProperties"] = False
    return {name: definitions[schemas[name, "validation"]["$ref"].rpartition("/")[2]] for name in kinds}, definitions


def _required(known: Iterable[Field[Any]]) -> list[str]:
    return [each.name for each in known if each.default is MISSING and each.default_factory is MISSING]


def _parse_value(hint: type[Any], node: Node, key: str, problems: Problems) -> object:
    kind, may_be_none = _section_kind(hint)
    if kind is None:
        return _parse_leaf(hint, node, key, problems)
    if node.value is None and may_be_none:
        return None
    return parse(node, kind, problems, key)


def _section_kind(hint: type[Any]) -> tuple[type | None, bool]:
    """The dataclass that a field's type names, if it does, and whether the field may also be None."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    may_be_none = get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    if may_be_none and len(get_args(hint)) == 2:
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    return (hint if is_dataclass(hint) and isinstance(hint, type) else None), may_be_none


def _parse_leaf(hint: type[Any], node: Node, key: str, problems: Problems) -> object:
    adapter = TypeAdapter[Any](hint, config=ConfigDict(allow_inf_nan=False))
    try:
        return adapter.validate_python(_bare(node))
    except ValidationError as invalid:
        # A list without a valid entry is also "too short", which adds nothing.
        errors = [error for error in invalid.errors() if error["type"] != "too_short"] or invalid.errors()
    found = [(*_locate(node, key, error["loc"]), error) for error in errors]
    for (child_key, child), group in groupby(found, key=lambda each: each[:2]):
        problems.add(child.where, child_key, _message([error for *_, error in group], child))
    return None


def _bare(node: Node) -> Plain:
    if isinstance(node.value, Mapping):
        return {key: _bare(child) for key, child in node.value.items()}
    return [_bare(child) for child in node.value] if isinstance(node.value, tuple) else node.value


def _locate(node: Node, key: str, steps: tuple[int | str, ...]) -> tuple[str, Node]:
    """The entry of a list or mapping that an error is about; steps that name a member of a union lead nowhere."""
    for step in steps:
        if isinstance(step, int) and isinstance(node.value, tuple) and step < len(node.value):
            node, key = node.value[step], f"{key}[{step}]"
        elif step in node.entries():
            node, key = node.entries()[str(step)], f"{key}.{step}"
    return key, node


def _message(errors: Sequence[ErrorDetails], node: Node) -> str:
    if len(errors) == 1 and errors[0]["type"] == "literal_error" and isinstance(node.value, str):
        known = re.findall(r"'([^']*)'", errors[0]["ctx"]["expected"])
        return f"unknown value {node.value!r}{suggestion(node.value, known)}"
    if any(error["type"] not in _EXPECTED for error in errors):
        return errors[0]["msg"].removeprefix("Value error, ")
    expected = [_EXPECTED[error["type"]].format(**error.get("ctx", {})) for error in errors]
    return f"expected {' or '.join(dict.fromkeys(expected))}, found {describe(node)}"
