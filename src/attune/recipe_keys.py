"""Every key of a recipe with its type, default, meaning and first version, and the JSON schema that editors read.

All of it is derived from the dataclasses of the settings, as the reference pages and `attune explain` show it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from attune import catalog, config
from attune.catalog import suggestion
from attune.errors import ConfigError
from attune.recipe import SLOTS, Recipe, settings_of

FIRST_VERSION, NEXT_VERSION = "0.1", "0.2"
FIRST_KEYS = Path(__file__).with_name("keys-0.1.txt")  # a key, and its owner where it has one
LIMITS = {"exclusiveMinimum": "> {}", "minimum": "≥ {}", "exclusiveMaximum": "< {}", "maximum": "≤ {}"}
WORDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false"}
BASE = {"type": "string", "description": "Another recipe file to start from, relative to this one.", "default": None}

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecipeKey:
    """One key as `attune explain` shows it; `owner` is the task or family that has it, where only some do."""

    key: str
    type: str
    default: str
    meaning: str
    owner: str = ""
    since: str = NEXT_VERSION


def explain(key: str) -> list[RecipeKey]:
    """What a key means: of a section, each of its keys; of a key that several plug-ins have, each one's."""
    keys = list(recipe_keys())
    found = [each for each in keys if each.key == key or each.key.startswith(f"{key}.")]
    if found:
        return found
    known = list(dict.fromkeys(each.key for each in keys))
    endings = [each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]]
    hint = f"; did you mean {' or '.join(endings[:3])}?" if endings else suggestion(key, known) or "."
    raise ConfigError(f"Recipes have no key {key!r}{hint} `attune explain` lists all.")


def recipe_keys() -> Iterator[RecipeKey]:
    """Every key in the order of the reference; those of a task or family for each that is installed."""
    schema = json_schema()
    for name, each in schema["properties"].items():
        keys = _plug_in_keys(name, schema["$defs"]) if name in SLOTS else _keys(name, each, schema["$defs"], "")
        yield from (replace(key, since=_since(key)) for key in keys)


def _since(key: RecipeKey) -> str:
    """The release of attune that brought a key."""
    return FIRST_VERSION if f"{key.key} {key.owner}".strip() in _first_keys() else NEXT_VERSION


@cache
def _first_keys() -> frozenset[str]:
    return frozenset(FIRST_KEYS.read_text(encoding="utf-8").splitlines())


def _plug_in_keys(section: str, definitions: Schema) -> Iterator[RecipeKey]:
    slot = SLOTS[section]
    choices = [
        each for each in definitions[slot.choice.__name__]["anyOf"] if "const" in each["properties"][slot.chooser]
    ]
    names = [each["properties"][slot.chooser]["const"] for each in choices]
    chooser = f"{section}.{slot.chooser}"
    kind = f"{', '.join(names)}, or the dotted name of a plug-in"
    yield RecipeKey(chooser, kind, "required", f"Its {slot.kind.noun}, which decides the other keys of `{section}`.")
    for name, choice in zip(names, choices, strict=True):
        for key, each in choice["properties"].items():
            if key != slot.chooser:
                yield from _keys(f"{section}.{key}", each, definitions, name)


def _keys(key: str, schema: Schema, definitions: Schema, owner: str) -> Iterator[RecipeKey]:
    inner = definition(schema, definitions)
    if inner is None:
        yield RecipeKey(key, type_of(schema), default_of(schema, "required"), schema.get("description", ""), owner)
        return
    meaning = schema.get("description") or inner.get("description", "").partition("\n")[0]
    yield RecipeKey(key, "section", default_of(schema, "its defaults"), meaning, owner)
    for name, each in inner["properties"].items():
        yield from _keys(f"{key}.{name}", each, definitions, owner)


def definition(schema: Schema, definitions: Schema) -> Schema | None:
    """The section that a key holds, if it holds one."""
    for each in (schema, *schema.get("anyOf", ())):
        if "$ref" in each:
            found: Schema = definitions[each["$ref"].rpartition("/")[2]]
            return found
    return None


def default_of(schema: Schema, without: str) -> str:
    """A default as a recipe would have it."""
    if "default" not in schema:
        return without
    if schema["default"] is None:
        return "unset"
    return json.dumps(schema["default"], ensure_ascii=False).replace('"', "")


def type_of(schema: Schema) -> str:
    """What a key takes, in words."""
    if "anyOf" in schema:
        return " or ".join(type_of(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "const" in schema or "enum" in schema:
        return ", ".join(str(each) for each in schema.get("enum", [schema.get("const")]))
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])} × {type_of(schema['prefixItems'][0])}"
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}"
    limits = [words.format(_number(schema[limit])) for limit, words in LIMITS.items() if limit in schema]
    return " ".join([WORDS.get(schema.get("type", ""), "text"), ", ".join(limits)]).strip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def json_schema() -> dict[str, Any]:
    """The JSON schema of recipe files, for editors; it knows the settings of every installed task and family."""
    kinds: dict[str, type] = {"recipe": Recipe}
    for slot in SLOTS.values():
        kinds |= {
            f"{slot.kind.folder} {name}": settings_of(catalog.find(slot.kind, name))
            for name in catalog.names(slot.kind)
        }
    schemas, definitions = config.json_schemas(kinds)
    for slot in SLOTS.values():
        plug_ins = {name: schemas[f"{slot.kind.folder} {name}"] for name in catalog.names(slot.kind)}
        definitions[slot.choice.__name__] = _choice_schema(slot.chooser, plug_ins)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schemas["recipe"],
        "properties": {"base": BASE, **schemas["recipe"]["properties"]},
        "$defs": definitions,
    }


def _choice_schema(chooser: str, plug_ins: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Any of the installed plug-ins with its settings, or one from elsewhere by its dotted name."""
    known = [
        {**schema, "properties": {chooser: {"const": name}, **schema.get("properties", {})}}
        for name, schema in plug_ins.items()
    ]
    elsewhere = {"type": "object", "properties": {chooser: {"type": "string", "pattern": r"\."}}, "required": [chooser]}
    return {"anyOf": [*known, elsewhere]}
