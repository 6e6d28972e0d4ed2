from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from attune.config import flatten, json_schemas, parse, parse_fields, to_plain
from attune.plain_yaml import Node, Problems, read_overrides

from toy.task import Config as ToyConfig


@dataclass(frozen=True)
class Inner:
    size: Annotated[int, Field(gt=0, le=10)]
    share: Annotated[float, Field(ge=0, lt=1)] = 0.5


@dataclass(frozen=True)
class Settings:
    text: str = ""
    whole: int = 0
    number: float = 0.0
    truth: bool = False
    maybe: float | None = 1.0
    kind: Literal["linear", "cosine"] | None = "linear"
    pair: tuple[float, float] = (0.9, 0.98)
    words: Annotated[tuple[str, ...], Field(min_length=1)] = ("a",)
    limit: int | Literal["auto"] = "auto"
    prices: dict[str, float] = field(default_factory=dict)
    folder: Path = Path()
    inner: Inner | None = None


def settings(*overrides):
    problems = Problems()
    value = parse(read_overrides(overrides, problems), Settings, problems)
    return value, [str(problem).removeprefix("override: ") for problem in problems.found]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("text=no", "no"),
        ("text=010", "010"),
        ("text=null ish", "null ish"),
        ("text='null'", "null"),
        ("whole=42", 42),
        ("number=1e-4", 1e-4),
        ("number=3", 3.0),
        ("truth=true", True),
        ("truth=no", False),
        ("maybe=null", None),
        ("maybe=240", 240.0),
        ("kind=cosine", "cosine"),
        ("kind=", None),
        ("pair=[0.9, 1e-2]", (0.9, 0.01)),
        ("words=[no, 1, 1e-4]", ("no", "1", "1e-4")),
        ("limit=5", 5),
        ("limit=auto", "auto"),
        ("prices={a: 1, b: 2e-1}", {"a": 1.0, "b": 0.2}),
        ("folder=a/b", Path("a/b")),
        ("inner={size: 3}", Inner(3)),
        ("inner=~", None),
    ],
)
def test_the_declared_type_decides(override, expected):
    value, problems = settings(override)
    assert not problems
    found = getattr(value, override.partition("=")[0])
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("whole=abc", "whole: expected a whole number, found 'abc'"),
        ("whole=1.5", "whole: expected a whole number, found '1.5'"),
        ("whole=", "whole: expected a whole number, found nothing"),
        ("whole=[1]", "whole: expected a whole number, found a list of 1"),
        ("number=abc", "number: expected a number, found 'abc'"),
        ("number=nan", "number: expected a finite number, found 'nan'"),
        ("number=-inf", "number: expected a finite number, found '-inf'"),
        ("truth=perhaps", "truth: expected true or false, found 'perhaps'"),
        ("text={a: b}", "text: expected text, found keys and values"),
        ("kind=cosin", "kind: unknown value 'cosin'; did you mean 'cosine'?"),
        ("kind=x", "kind: unknown value 'x' (known: cosine, linear)"),
        ("kind=[x]", "kind: expected 'linear' or 'cosine', found a list of 1"),
        ("pair=[1]", "pair: expected a longer list, found a list of 1"),
        ("pair=[1, 2, 3]", "pair: expected a list of at most 2, found a list of 3"),
        ("pair=[1, x]", "pair[1]: expected a number, found 'x'"),
        ("words=a", "words: expected a list, found 'a'"),
        ("words=[]", "words: expected a list of at least 1, found a list of 0"),
        ("words=[[]]", "words[0]: expected text, found a list of 0"),
        ("limit=x", "limit: expected a whole number or 'auto', found 'x'"),
        ("prices=3", "prices: expected keys and values, found '3'"),
        ("prices={a: x}", "prices.a: expected a number, found 'x'"),
        ("inner=3", "inner: expected keys and values, found '3'"),
        ("inner.share=0.1", "inner.size: required, but missing"),
        ("inner={size: 0}", "inner.size: expected more than 0, found '0'"),
        ("inner={size: 11}", "inner.size: expected at most 10, found '11'"),
        ("inner={size: 1, share: 1}", "inner.share: expected less than 1, found '1'"),
        ("inner={size: 1, share: -1}", "inner.share: expected at least 0, found '-1'"),
        ("inner={size: 1, shre: 1}", "inner.shre: unknown key; did you mean 'share'?"),
        ("wohle=1", "wohle: unknown key; did you mean 'whole'?"),
    ],
)
def test_what_is_wrong_is_said_in_words_for_people(override, problem):
    value, problems = settings(override)
    assert value is None
    assert problems == [problem]


def test_a_long_value_is_not_repeated_in_full():
    _, (problem,) = settings("whole=" + "x" * 500)
    assert len(problem) < 120


def test_every_problem_is_found_at_once():
    _, problems = settings("whole=a", "number=b", "nope=1", "inner={size: c, share: d}")
    assert [problem.partition(":")[0] for problem in problems] == [
        "whole",
        "number",
        "nope",
        "inner.size",
        "inner.share",
    ]


def test_what_is_right_is_kept_beside_what_is_wrong():
    problems = Problems()
    tree = read_overrides(["whole=3", "number=x"], problems)
    assert parse_fields(tree, Settings, problems) == {"whole": 3}


def test_the_caller_may_read_a_key_itself():
    problems = Problems()
    tree = read_overrides(["whole=3"], problems)
    values = parse_fields(tree, Settings, problems, readers={"whole": lambda node, key, problems: (node.value, key)})
    assert values == {"whole": ("3", "whole")}


def test_an_error_of_the_dataclass_itself_is_a_problem_of_its_section():
    problems = Problems()
    tree = Node({"language": Node("tlh", "x.yaml:3")}, "x.yaml:2")
    assert parse(tree, ToyConfig, problems, "task") is None
    assert [str(problem) for problem in problems.found] == ["x.yaml:2: task: Klingon needs a lexicon"]


def test_plain_values_are_what_yaml_and_json_hold():
    value = Settings(words=("a", "b"), folder=Path("x/y"), inner=Inner(1), prices={"a": 1.0})
    plain = to_plain(value)
    assert plain["words"] == ["a", "b"]
    assert plain["folder"] == "x/y"
    assert plain["inner"] == {"size": 1, "share": 0.5}
    assert plain["truth"] is False


def test_flattening_names_every_leaf_by_its_dotted_key():
    assert flatten({"a": 1, "b": {"c": [2], "d": {"e": None}}, "f": {}}) == {"a": 1, "b.c": [2], "b.d.e": None, "f": {}}


def test_the_schema_has_limits_and_descriptions_and_refuses_unknown_keys():
    schemas, definitions = json_schemas({"a": Settings, "b": ToyConfig})
    assert definitions["Inner"]["properties"]["size"] == {
        "exclusiveMinimum": 0, "maximum": 10, "title": "Size", "type": "integer"
    }  # fmt: skip
    assert schemas["b"]["properties"]["language"]["description"] == "The language spoken."
    assert not schemas["a"]["additionalProperties"]
    assert "required" not in definitions["Inner"]
