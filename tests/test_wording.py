"""The package and its documentation use the field's own words, and one name for one thing."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import attune

PACKAGE = Path(attune.__file__).parent
ROOT = Path(__file__).parents[1]
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
