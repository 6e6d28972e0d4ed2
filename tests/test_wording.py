"""The package and its documentation use the field's own words, and one name for one thing."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import attune
from attune.cli import verbs
from attune.cli._shell import parser_of

PACKAGE = Path(attune.__file__).parent
ROOT = Path(__file__).parents[1]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])")
COMMAND = re.compile(r"\battune ([a-z][a-z-]*)([^.`;]*)")  # in a message: a verb, and what follows
OF_OTHERS = {  # flags of other programs, by the modules that run or advise them
    "cli/_completion.py": {"--option"},
    "cli/_shell.py": {"--option"},
    "launch/doctor.py": {"--force-reinstall", "--query-gpu", "--shm-size", "--upgrade", "--format"},
    "launch/jobs.py": {"--constraint", "--editable", "--requirement"},
    "launch/ray.py": {"--head"},
    "run.py": {"--abbrev", "--always", "--dirty"},
}
# Say prompt, detected, emitted, reported, transcript. Parts of names count too: `told_prompt`.
OLD_WORDS = re.compile(r"(?<![a-z])(told|heard|said|spoken)(?![a-z])", re.IGNORECASE)
ALLOWED = {"src/attune/training/checkpoint.py": 1}  # the former name of a field, read in old checkpoints


def test_the_fields_words_are_used():
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    found = {path.relative_to(ROOT).as_posix(): OLD_WORDS.findall(path.read_text(encoding="utf-8")) for path in files}
    assert {path: words for path, words in found.items() if len(words) > ALLOWED.get(path, 0)} == {}


def test_no_two_classes_share_a_name():
    """Except `Options`, which each corpus has by contract, and private ones."""
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name != "Options":
                modules[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


def flags_of(verb: str) -> set[str]:
    return {option for action in parser_of(verb)._actions for option in action.option_strings}


def messages():
    """Every text of the package, with the module that it is in; the parts of an f-string are one, with gaps."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module, tree = path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        inside = {id(part) for node in joined for part in node.values}
        for node in joined:
            yield module, "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                yield module, node.value


def test_messages_name_flags_that_exist_and_of_a_command_its_own():
    known = {"--help", "--version"}.union(*map(flags_of, verbs()))
    found = set()
    for module, text in messages():
        flags = set(FLAG.findall(text)) - known - OF_OTHERS.get(module, set())
        found |= {(module, flag) for flag in flags}
        for verb, rest in COMMAND.findall(text):
            if verb in verbs():
                found |= {(module, f"{verb} {flag}") for flag in set(FLAG.findall(rest)) - flags_of(verb)}
    assert found == set()
