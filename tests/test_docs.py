"""What the documentation shows is true: links lead somewhere, recipes load, commands parse, Python compiles or runs."""

import functools
import importlib.util
import posixpath
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from attune import config, recipe
from attune.catalog import find, names
from attune.cli import verbs
from attune.cli._shell import parser_of
from attune.corpora import CORPORA
from attune.families.ssl.upstream import UPSTREAMS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "benchmarks/README.md", *(ROOT / "docs").rglob("*.md")])
GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
INLINE = re.compile(r"`(attune [a-z][^`]*)`")
OPERATORS = {"|", "||", "&&", ";", ">", ">>", "<", "&", "{", "}"}
RUN = "<!-- run -->"
SECTIONS = {
    "base",
    "run",
    "seed",
    "data",
    "task",
    "model",
    "adapt",
    "augment",
    "batches",
    "optimizer",
    "train",
    "decode",
}
# What a fragment of a recipe leaves out.
REST = {
    "run": "runs/x",
    "data": {"train": ["a.jsonl"], "dev": ["b.jsonl"]},
    "task": {"name": "transcribe"},
    "model": {"family": "ssl"},
    "batches": {"micro_utterances": 8},
    "optimizer": {"lr": 1e-4},
    "train": {"steps": 100_000, "eval_every": 1000},
}


class Block(NamedTuple):
    """A fenced block of code."""

    page: str
    line: int
    language: str
    code: str
    is_run: bool


def blocks(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]


@functools.cache
def blocks_of(page: Path) -> list[Block]:
    return list(read_blocks(page))


def read_blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    start = None
    for number, line in enumerate(lines):
        if line.startswith("```") and start is None:
            start = number
        elif line.startswith("```"):
            name = str(page.relative_to(ROOT))
            code = "\n".join(lines[start + 1 : number]) + "\n"
            yield Block(name, start + 2, lines[start][3:], code, RUN in lines[start - 1])
            start = None
    assert start is None, f"{page}: a block that begins on line {start} does not end"


def named(block: Block) -> str:
    return f"{block.page}:{block.line}"


def prose(page: Path) -> str:
    """The text of a page without blocks and inline code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "code", text)


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page that are the same on a code host and on the site."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = [title.replace("`", "") for title in HEADING.findall(text)]
    host = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    site = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}
    return frozenset(host & site)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    wrong = []
    for target in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = page if not path else Path(posixpath.normpath(page.parent / path))
        if not found.is_file() or (anchor and anchor not in anchors(found)):
            wrong.append(target)
    assert wrong == []


def test_the_readme_links_to_every_guide_and_the_index_to_every_decision():
    readme, index = ((ROOT / name).read_text() for name in ("README.md", "docs/decisions/index.md"))
    assert [guide.name for guide in GUIDES if f"docs/guides/{guide.name}" not in readme] == []
    decisions = sorted(path.name for path in (ROOT / "docs/decisions").glob("0*.md"))
    assert re.findall(r"\((0[^)]+)\)", index) == decisions


@pytest.mark.parametrize("block", blocks("yaml"), ids=named)
def test_every_yaml_block_loads_as_a_recipe_or_as_part_of_one(block, tmp_path):
    written = yaml.safe_load(block.code)
    assert written.keys() <= SECTIONS
    left_out = {
        name: section
        for name, section in REST.items()
        if name != "batches" or name not in written  # it takes one of two keys
        if name != "data" or "stream" not in written.get("data", {})  # likewise
    }
    (tmp_path / "rest.yaml").write_text(yaml.safe_dump(left_out))
    (tmp_path / "block.yaml").write_text(("" if "run" in written else "base: rest.yaml\n") + block.code)
    recipe.load(tmp_path / "block.yaml")


@pytest.mark.parametrize("block", [*blocks("sh"), *blocks("bash")], ids=named)
def test_every_command_in_a_shell_block_parses(block):
    for words in commands(block.code):
        parse(words)


def commands(code: str) -> Iterator[list[str]]:
    """The arguments of each `attune` in a script, whoever starts it: a shell, srun, torchrun, docker …"""
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.commenters, lexer.whitespace_split = "#", True
        words = list(lexer)
        for place, word in enumerate(words):
            is_command = words[0] != "docker" or {"run", "exec"} & set(words[:place])
            if word.rpartition("/")[2] in ("attune", "attune:cuda") and is_command:
                rest = words[place + 1 :]
                end = next((number for number, each in enumerate(rest) if each in OPERATORS), len(rest))
                yield rest[:end]
                break


def parse(words: list[str]) -> None:
    """What the command would do with its arguments, and the recipe with its overrides."""
    verb, *rest = words
    assert verb in verbs(), f"there is no verb {verb!r}"
    parser = parser_of(verb)

    def fail(message: str) -> None:
        raise ValueError(f"attune {' '.join(words)}: {message}")

    parser.error = fail
    arguments = parser.parse_intermixed_args(rest)
    if verb == "prepare":
        corpus = "csv" if arguments.corpus == "auto" else arguments.corpus  # the one that a guide's example is
        known = {each.name for each in config.fields(find(CORPORA, corpus).options)}
        assert {option.partition("=")[0] for option in arguments.options} <= known
    elif "overrides" in arguments:
        assert {each.partition("=")[0] for each in arguments.overrides} <= recipe_keys()


@functools.cache
def recipe_keys() -> frozenset[str]:
    page = (ROOT / "docs/reference/recipe.md").read_text()
    return frozenset(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_the_text_is_a_verb_with_its_own_options(page):
    for command in INLINE.findall(page.read_text(encoding="utf-8")):
        _, verb, *rest = command.split()
        assert verb in verbs(), command
        known = {option for action in parser_of(verb)._actions for option in action.option_strings}
        assert {word for word in rest if word.startswith("--")} <= known, command


@pytest.mark.parametrize("block", blocks("python"), ids=named)
def test_every_python_block_compiles_and_runs_where_it_can(block, tmp_path, monkeypatch):
    compile(block.code, named(block), "exec")
    if block.is_run:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "block.py").write_text(block.code, encoding="utf-8")
        runpy.run_path(str(tmp_path / "block.py"))


@pytest.mark.parametrize(("kind", "what"), [(CORPORA, "corpus layouts"), (UPSTREAMS, "upstreams")])
def test_the_readme_counts_what_there_is(kind, what):
    assert f"[{len(names(kind))} {what}]" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_reference_pages_are_what_the_code_says():
    loader = SourceFileLoader("make_reference", str(ROOT / "scripts/make-reference"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    old = {
        name: (ROOT / "docs/reference" / name).read_text(encoding="utf-8") == text
        for name, text in module.pages().items()
    }
    assert all(old.values()), "run scripts/make-reference"
    commands = module.pages()["commands.md"]
    assert "SUPPRESS" not in commands and "| hf://…, s3://… or a new folder. |" not in commands
    assert "| `--locked LOCK` | sources.lock.json of a run. |" in commands and "Hf://" not in commands


@pytest.mark.recipe
@pytest.mark.skipif(not importlib.util.find_spec("material"), reason="mkdocs-material is not installed")
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/guides/whisper.html").exists()
