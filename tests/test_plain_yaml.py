import pytest

from attune.errors import ConfigError
from attune.plain_yaml import Node, Problems, inline_yaml, merge, read_file, read_overrides, yaml_lines

from work import lines_run


def read(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    problems = Problems()
    return read_file(path, problems), [str(problem).removeprefix(f"{tmp_path}/") for problem in problems.found]


def bare(node):
    if isinstance(node.value, tuple):
        return [bare(child) for child in node.value]
    return {key: bare(child) for key, child in node.entries().items()} if node.entries() else node.value


def test_every_plain_scalar_stays_as_written_and_only_null_is_none(tmp_path):
    tree, problems = read(
        tmp_path, "a: no\nb: 1e-4\nc: 010\nd: 2024-01-01\ne: null\nf: ~\ng:\nh: 'null'\ni: ''\nj: [yes]\n"
    )
    assert not problems
    assert bare(tree) == {
        "a": "no", "b": "1e-4", "c": "010", "d": "2024-01-01", "e": None, "f": None, "g": None, "h": "null", "i": "",
        "j": ["yes"],
    }  # fmt: skip


def test_a_value_knows_the_line_of_its_key(tmp_path):
    tree, _ = read(tmp_path, "# comment\ntrain:\n\n  steps:\n    5\n  list:\n    - a\n    - b\n")
    assert tree.find("train").where.endswith("x.yaml:2")
    assert tree.find("train.steps").where.endswith("x.yaml:4")
    assert tree.find("train.list").value[1].where.endswith("x.yaml:8")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "x.yaml:1: the file is empty"),
        ("# only this\n", "x.yaml:1: the file is empty"),
        ("\n- a\n- b\n", "x.yaml:2: expected `key: value` lines, found a list of 2"),
        ("just words\n", "x.yaml:1: expected `key: value` lines, found 'just words'"),
        ("a:\n\tb: 1\n", "x.yaml:2: tabs are not allowed in YAML indentation; use spaces"),
        ("a: 1\nb: [1,\nc: 2\n", "x.yaml:4: bad YAML: "),
        ("a: b: c\n", "x.yaml:1: bad YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: bad YAML: but found another document"),
        ("a: *nowhere\n", "x.yaml:1: bad YAML: found undefined alias"),
        ("a: 1\nb: \x07\n", "x.yaml:2: bad YAML: character '\\x07' is not allowed"),
        (b"a: 1\nb: \xff\n", "x.yaml:2: not UTF-8 text"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: a: already given at "),
        ("a: 1\n? [b]\n: 2\n", "x.yaml:2: a key must be a word"),
        ("a: " + "[" * 1000, "x.yaml:1: nested too deeply"),
        ("a: &a [*a]\n", "x.yaml:1: nested too deeply"),
        ("a: " + "x" * 1_000_000, "x.yaml: more than 1,000,000 bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_problem_with_its_line(tmp_path, text, problem):
    _, problems = read(tmp_path, text)
    assert len(problems) == 1
    assert problems[0].startswith(problem)


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!apply", "!!int", "!!binary"])
def test_no_tag_is_executed_and_each_is_a_problem(tmp_path, tag):
    _, problems = read(tmp_path, f"a: 1\nb: {tag} ['touch {tmp_path}/owned']\n")
    assert len(problems) == 1
    assert problems[0].startswith(f"x.yaml:2: b: tag {tag} is not allowed")
    assert not (tmp_path / "owned").exists()


def test_an_alias_stands_for_its_value(tmp_path):
    tree, problems = read(tmp_path, "a: &words [x, y]\nb: *words\n")
    assert not problems
    assert bare(tree)["b"] == ["x", "y"]
    assert tree.find("b").where.endswith("x.yaml:2")


def test_an_alias_bomb_is_refused_before_it_grows(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    found = []
    assert lines_run(lambda: found.extend(read(tmp_path, "\n".join(lines)))) < 1_000_000  # it stands for 9³⁰ values
    tree, problems = found
    assert tree is None
    assert "more than 10,000 values" in problems[0]


def test_a_missing_file_is_answered_with_the_nearest_name(tmp_path):
    (tmp_path / "demo.yaml").touch()
    problems = Problems()
    assert read_file(tmp_path / "dmeo.yaml", problems) is None
    assert str(problems.found[0]).endswith("dmeo.yaml: no such file; did you mean 'demo.yaml'?")


def test_a_folder_is_not_a_file(tmp_path):
    problems = Problems()
    assert read_file(tmp_path, problems) is None
    assert "cannot be read" in str(problems.found[0])


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    tree, _ = read(tmp_path, b"\xef\xbb\xbfa: 1\n")
    assert bare(tree) == {"a": "1"}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("a.b=no", {"a": {"b": "no"}}),
        ("a=1e-4", {"a": "1e-4"}),
        ("a=x=y", {"a": "x=y"}),
        ("a=", {"a": None}),
        ("a=null", {"a": None}),
        ("a='null'", {"a": "null"}),
        ("a=[x, 'y, z']", {"a": ["x", "y, z"]}),
        ("a={b: [c]}", {"a": {"b": ["c"]}}),
        ("a=hf://openai/whisper-small", {"a": "hf://openai/whisper-small"}),
        ("a=two words", {"a": "two words"}),
    ],
)
def test_an_override_is_a_yaml_value(override, expected):
    problems = Problems()
    assert bare(read_overrides([override], problems)) == expected
    assert not problems.found


@pytest.mark.parametrize("override", ["a", "=1", "a..b=1", ".a=1", "a=[1", "a=1]", "a=1, 2", "a=!!int 3", "a=\t- b"])
def test_a_bad_override_is_a_problem_and_sets_nothing(override):
    problems = Problems()
    assert bare(read_overrides(["b=1", override], problems)) == {"b": "1"}
    assert [problem.where for problem in problems.found] == ["override"]


def test_merging_goes_into_sections_and_replaces_lists():
    under = read_overrides(["a.b=1", "a.c=[1, 2]", "d=x"], Problems())
    over = read_overrides(["a.c=[3]", "a.e.f=4", "d={g: 5}"], Problems())
    assert bare(merge(under, over)) == {"a": {"b": "1", "c": ["3"], "e": {"f": "4"}}, "d": {"g": "5"}}


def test_problems_are_raised_together_in_the_order_of_their_lines():
    problems = Problems()
    problems.add("x.yaml:10", "b", "second")
    problems.add("x.yaml:9", "a", "first")
    problems.add("x.yaml", "", "whole file")
    with pytest.raises(ConfigError) as error:
        problems.raise_all()
    assert str(error.value) == "x.yaml: whole file\nx.yaml:9: a: first\nx.yaml:10: b: second"


def test_no_problem_raises_nothing():
    Problems().raise_all()


UGLY = [
    "no", "null", "~", "", " a", "a ", "a: b", "a #b", "#a", "- a", "[a", "a]", "a,b", "{", "*a", "&a", "!a", "'", '"',
    "a\nb", "a\tb", "\\n", "1e-4", "1.0", "0x1f", "2024-01-01", "2024-99-99", "10:30", "<<", "=", "---", "?", "? a",
    "%a", "@a", "`a`", "né", "日本", "😀", "\x07", "\x85", "\u2028", "\ufeff",
    "a" * 200 + " " + "b" * 200, "hf://a/b", "s3://a?b=c&d#e",
]  # fmt: skip


@pytest.mark.parametrize("text", UGLY)
def test_any_text_is_read_back_as_it_was_written(tmp_path, text):
    lines = [line for line, _ in yaml_lines({"a": {"b": text, "c": [text, {"d": text}], text: "e"}})]
    tree, problems = read(tmp_path, "\n".join(lines))
    assert not problems
    assert bare(tree) == {"a": {"b": text, "c": [text, {"d": text}], text: "e"}}


def test_other_readers_of_yaml_agree_about_types():
    import yaml

    plain = {"a": "no", "b": "1.5", "c": None, "d": True, "e": 3, "f": 0.25, "g": ["x", "2024-01-01"], "h": {}}
    assert yaml.safe_load(inline_yaml(plain)) == plain


def test_a_node_points_to_the_nearest_section_of_a_missing_key():
    tree = Node({"a": Node({"b": Node("1", "x:3")}, "x:2")}, "x")
    assert [tree.nearest(key) for key in ("a.b", "a.c", "d")] == ["x:3", "x:2", "x"]
