import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attune import cli
from attune.cli import main, show, verbs
from attune.cli._shell import parser_of
from attune.errors import Preempted

ROOT = Path(__file__).parents[2]


def attune(*words, code=None):
    """Run the command in a process of its own."""
    start = ["-c", code] if code else ["-m", "attune"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    return subprocess.run(
        [sys.executable, *start, *words], capture_output=True, text=True, env=environment, timeout=60, check=False
    )


def test_help_lists_every_verb_with_its_line_and_does_not_load_torch():
    result = attune(
        "--help",
        code="import atexit, sys\n"
        "heavy = {'torch', 'pydantic', 'numpy', 'yaml'}\n"
        "atexit.register(lambda: print(len(sys.modules), sorted(heavy & set(sys.modules))))\n"
        "from attune.cli import main\nmain()",
    )
    assert result.returncode == 0
    modules, heavy = result.stdout.splitlines()[-1].split(maxsplit=1)
    assert heavy == "[]" and int(modules) < 250  # Python itself has about 100
    for name in cli.verbs():
        assert f"  {name} " in result.stdout
    assert show.HELP in result.stdout


def test_every_verb_has_help_with_an_example(capsys):
    for name in cli.verbs():
        with pytest.raises(SystemExit) as exit:
            main([name, "--help"])
        assert exit.value.code == 0
        assert f"example:\n  attune {name}" in capsys.readouterr().out


def test_python_m_attune_is_the_same_command():
    result = attune("--version")
    assert result.returncode == 0
    assert result.stdout.startswith("attune ")


def test_without_a_verb_the_help_is_an_error(capsys):
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_a_wrong_verb_is_answered_with_the_nearest(capsys):
    assert main(["shwo"]) == 2
    assert capsys.readouterr().err == "Unknown command 'shwo'; did you mean 'show'?\n"


def test_an_unknown_option_is_an_error():
    with pytest.raises(SystemExit) as exit:
        main(["show", "x.yaml", "--jsn"])
    assert exit.value.code == 2


def test_a_users_mistake_is_a_message_without_traceback():
    result = attune("show", "nowhere.yaml")
    assert result.returncode == 2
    assert result.stderr == "nowhere.yaml: no such file\n"
    assert result.stdout == ""


def ending_with(monkeypatch, error):
    def run(arguments):
        raise error

    monkeypatch.setattr(show, "run", run)
    return main(["show", "x.yaml"])


def test_an_error_decides_its_exit_code(monkeypatch, capsys):
    assert ending_with(monkeypatch, Preempted("Saved; the same command goes on.")) == 75
    assert capsys.readouterr().err == "Saved; the same command goes on.\n"


def test_an_interrupted_command_exits_with_130(monkeypatch):
    assert ending_with(monkeypatch, KeyboardInterrupt()) == 130


@pytest.mark.parametrize("error", [ZeroDivisionError("ours"), BrokenPipeError("of a worker")])
def test_our_own_mistakes_keep_their_traceback(monkeypatch, error):
    with pytest.raises(type(error)):
        ending_with(monkeypatch, error)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_told_in_a_line():
    for words in (["list"], ["list", "families"]):
        with Path("/dev/full").open("w") as full:
            result = subprocess.run(
                [sys.executable, "-m", "attune", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert result.returncode == 1
        assert result.stderr.startswith("Disk full")
        assert result.stderr.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error():
    result = subprocess.run(
        f"({sys.executable} -m attune schema; echo $? >&2) | true",
        shell=True, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert result.stderr == "141\n"


def test_lists_name_what_there_is_with_a_line_about_each(capsys):
    assert main(["list", "tasks"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("tasks:\n")
    assert re.search(r"  classify +Classify utterances", out)
    assert "metrics of classify:\n  accuracy  Share of utterances with the correct label" in out
    assert "edits per reference word. (%, lower is better)" in out
    assert main(["list", "tasks", "--json"]) == 0
    assert (
        json.loads(capsys.readouterr().out)["metrics"]["transcribe"][0].items() >= {"name": "wer", "unit": "%"}.items()
    )


def test_listing_everything_does_not_load_torch():
    result = attune(
        code="import sys\nfrom attune.cli import main\nmain(['list', '--json'])\nprint('torch' in sys.modules)"
    )
    assert result.returncode == 0, result.stderr
    assert '"ssl": "' in result.stdout
    assert result.stdout.endswith("False\n")


def test_what_cannot_be_listed_is_refused(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["list", "task"])
    assert exit.value.code == 2
    assert "'tasks'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", verbs())
def test_what_may_be_left_out_is_not_called_required(verb):
    optional = [each for each in parser_of(verb)._get_positional_actions() if each.nargs == "*"]
    assert all(each.default == [] for each in optional)  # without it, argparse names them where another one is missing


def test_a_missing_argument_is_named_alone(capsys):
    with pytest.raises(SystemExit):
        main(["new"])
    assert capsys.readouterr().err.endswith("attune new: error: the following arguments are required: data\n")
