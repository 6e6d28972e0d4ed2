import os
import shutil
import subprocess
import sys

import pytest

from attune.cli import main, verbs

ASK = """\
source "$1"
complete -p attune
COMP_WORDS=("${@:2}"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_attune
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The script of each shell, as a process prints it that then says whether torch was loaded."""
    folder = tmp_path_factory.mktemp("scripts")
    code = (
        "import contextlib, sys\nfrom attune.cli import main\n"
        "for shell in ('bash', 'zsh', 'fish'):\n"
        f"    with open(r'{folder}/' + shell, 'w') as file, contextlib.redirect_stdout(file):\n"
        "        main(['completion', shell])\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    return folder


def completed(scripts, *words):
    """What a real bash offers for the last of these words."""
    asked = ["bash", "--norc", "-c", ASK, "bash", str(scripts / "bash"), "attune", *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]})
    assert not done.stderr
    registered, *found = done.stdout.splitlines()
    assert registered.endswith("-F _attune attune")
    return [word for word in found if word]


def test_bash_completes_commands(scripts):
    assert completed(scripts, "tra") == ["train", "transcribe"]
    assert set(completed(scripts, "")) == {*verbs(), "--help", "--version"}


def test_bash_completes_the_options_of_a_command(scripts):
    assert completed(scripts, "evaluate", "runs/x", "--b") == ["--batch", "--by"]
    assert "--restarts" in completed(scripts, "train", "x.yaml", "-") and completed(scripts, "check", "--rest") == []


def test_bash_completes_the_values_of_an_option_with_a_space_or_an_equals_sign(scripts):
    assert completed(scripts, "transcribe", "m", "a.wav", "--device", "c") == ["cpu", "cuda"]
    assert completed(scripts, "transcribe", "m", "a.wav", "--device", "=", "cu") == ["cuda"]
    assert completed(scripts, "transcribe", "m", "a.wav", "--device", "=") == ["auto", "cpu", "cuda"]


def test_where_a_file_or_any_word_is_taken_bash_is_left_to_complete_files(scripts):
    assert completed(scripts, "transcribe", "mod") == []
    assert completed(scripts, "evaluate", "m", "--out", "") == []
    assert completed(scripts, "train", "x.yaml", "optimizer.l") == []


def test_words_that_a_command_takes_are_completed(scripts):
    assert completed(scripts, "completion", "") == ["bash", "zsh", "fish"]
    assert completed(scripts, "cache", "pr") == ["prune"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_command_and_option_is_in_the_scripts_of_other_shells(scripts, shell):
    text = (scripts / shell).read_text()
    assert all(f"{verb}" in text for verb in verbs())
    option = {
        "zsh": "'--device[device type (default auto)]:value:(auto cpu cuda)'",
        "fish": "-l device -x -a 'auto cpu cuda'",
    }
    assert option[shell] in text
    assert not any(line.count("'") % 2 for line in text.splitlines())
    program = shutil.which(shell)
    if program:
        assert subprocess.run([program, "-n", str(scripts / shell)], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_commands_options_and_values(scripts):
    def completed(line):
        asked = ["fish", "--no-config", "-c", f"source {scripts / 'fish'}; complete -C '{line}'"]
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        return [each.split("\t")[0] for each in found.splitlines() if each]

    assert completed("attune tra") == ["train", "transcribe"]
    assert completed("attune evaluate runs/x --b") == ["--batch", "--by"]
    assert completed("attune transcribe m a.wav --device c") == ["cpu", "cuda"]


ZSH = """\
compdef() { print compdef $@ }
_describe() { print commands ${#commands} }
CURRENT=2 words=(attune tra)
%s
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_names_the_function_where_it_is_sourced_and_calls_it_where_it_is_loaded(scripts, tmp_path):
    def done(code):
        asked = ["zsh", "-f", "-c", ZSH % code]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()

    shutil.copy(scripts / "zsh", tmp_path / "_attune")
    assert done(f"source {scripts / 'zsh'}") == ["compdef _attune attune"]
    assert done(f"fpath=({tmp_path}); autoload -U _attune; _attune") == [f"commands {len(verbs())}"]


def test_an_unknown_shell_is_refused(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["completion", "tcsh"])
    assert exit.value.code == 2 and "tcsh" in capsys.readouterr().err
