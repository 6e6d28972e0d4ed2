"""Print a script that completes attune's commands and options in a shell."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

HELP = "print a script that completes commands and options in bash, zsh or fish"
EXAMPLE = "attune completion bash >> ~/.bashrc"

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: ArgumentParser) -> None:
    """Take the shell."""
    parser.add_argument(
        "shell",
        choices=SHELLS,
        help="your shell; fish reads ~/.config/fish/completions/attune.fish, zsh a file _attune in a folder of fpath",
    )


def run(arguments: Namespace) -> int:
    """Print the script."""
    from attune.cli._completion import bash_script, fish_script, zsh_script
    from attune.cli._shell import described_verbs

    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    print(scripts[arguments.shell](described_verbs()), end="")
    return 0
