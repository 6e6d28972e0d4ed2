import os
import shlex
from pathlib import Path

from attune.cli import _shell
from attune.cli.demo import next_commands, this_command


def script_in(folder):
    folder.mkdir(parents=True)
    script = folder / "attune"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return folder / "python"


def test_without_an_activated_environment_the_demo_prints_the_path_of_its_own_command(tmp_path, monkeypatch):
    python = script_in(tmp_path / ".venv/bin")
    monkeypatch.chdir(tmp_path)
    assert this_command(python) == ".venv/bin/attune"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert this_command(python) == str(tmp_path / ".venv/bin/attune")


def test_in_an_activated_environment_the_demo_prints_the_plain_command(tmp_path, monkeypatch):
    python = script_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    assert this_command(python) == "attune"


def test_from_a_source_tree_the_demo_prints_the_interpreter(tmp_path):
    assert this_command(tmp_path / "python 3") == f"{shlex.quote(str(tmp_path / 'python 3'))} -m attune"


def test_every_command_that_the_demo_prints_is_one_that_attune_has():
    for words in next_commands(Path("runs/my demo")):
        verb, *rest = shlex.split(words)
        arguments = _shell.parser_of(verb).parse_intermixed_args(rest)
        assert "runs/my demo" in " ".join(map(str, vars(arguments).values()))
