"""Completion scripts for shells, made from the parsers of all commands: what they list is what the commands take."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

TOP = ("--help", "--version")


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its names, its help, whether a value follows, and which values there are, if not any."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its help, its options, and the words it takes where these are not files or anything else."""

    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]


def command_of(help: str, parser: argparse.ArgumentParser) -> Command:
    """What a parser takes; options without help are not shown."""
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    options = [_option(parser, action) for action in actions if action.option_strings]
    words = [str(word) for action in actions if not action.option_strings for word in action.choices or ()]
    return Command(help, tuple(options), tuple(words))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    help = (action.help or "").replace("%(prog)s", parser.prog).replace("%%", "%")
    values = tuple(str(choice) for choice in action.choices or ())
    return Option(tuple(action.option_strings), help, action.nargs != 0, values)


def bash_script(commands: Mapping[str, Command]) -> str:
    """A function for bash's `complete`; where it has nothing to offer, bash completes files."""
    values = [
        f'        "{verb} {name}") words="{" ".join(option.values)}" ;;'
        for verb, command in commands.items()
        for option in command.options
        if option.values
        for name in option.names
    ]
    files = [
        f'        "{verb} {name}") return ;;'
        for verb, command in commands.items()
        for option in command.options
        if option.takes_value and not option.values
        for name in option.names
    ]
    options = [f'            {verb}) words="{" ".join(_names(command))}" ;;' for verb, command in commands.items()]
    words = [f'            {verb}) words="{" ".join(each.words)}" ;;' for verb, each in commands.items() if each.words]
    return "\n".join(
        [
            "# bash completion for attune",
            "_attune() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            '    if [ "$word" = "=" ]; then word=""; fi  # --option=value is three words for bash',
            '    if [ "$before" = "=" ]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi',
            "    COMPREPLY=()",
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f'        words="{" ".join([*commands, *TOP])}"',
            '    else case "${COMP_WORDS[1]} $before" in',
            *values,
            *files,
            '        *) case "$word" in',
            '            -*) case "${COMP_WORDS[1]}" in',
            *options,
            "            esac ;;",
            '            *) case "${COMP_WORDS[1]}" in',
            *words,
            "            esac ;;",
            "        esac ;;",
            "    esac; fi",
            '    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o bashdefault -o default -F _attune attune",
            "",
        ]
    )


def zsh_script(commands: Mapping[str, Command]) -> str:
    """A function for zsh's `compdef`, with the help of each option beside it."""
    verbs = [f"        {_quoted(f'{verb}:{_plain(command.help)}')}" for verb, command in commands.items()]
    cases = [line for verb, command in commands.items() for line in _zsh_case(verb, command)]
    return "\n".join(
        [
            "#compdef attune",
            "_attune() {",
            "    local -a commands=(",
            *verbs,
            "    )",
            "    if (( CURRENT == 2 )); then _describe command commands; return; fi",
            "    local verb=$words[2]",
            "    shift words; (( CURRENT-- ))",
            "    case $verb in",
            *cases,
            "        *) _files ;;",
            "    esac",
            "}",
            # A file in fpath is this function's first call; a script that is sourced only names it.
            'if [ "$funcstack[1]" = "_attune" ]; then _attune "$@"; else compdef _attune attune; fi',
            "",
        ]
    )


def _zsh_case(verb: str, command: Command) -> Iterator[str]:
    yield f"        {verb})"
    yield "            _arguments \\"
    for option in command.options:
        choices = f"({' '.join(option.values)})" if option.values else "_files"
        value = f":value:{choices}" if option.takes_value else ""
        for name in option.names:
            yield f"                {_quoted(f'{name}[{_plain(option.help)}]{value}')} \\"
    words = f"*:word:({' '.join(command.words)})" if command.words else "*:file:_files"
    yield f"                {_quoted(words)} ;;"


def fish_script(commands: Mapping[str, Command]) -> str:
    """Lines of fish's `complete`, with the help of each option beside it."""
    lines = ["# fish completion for attune"]
    for verb, command in commands.items():
        lines.append(f"complete -c attune -f -n __fish_use_subcommand -a {verb} -d {_quoted(command.help)}")
        seen = f"complete -c attune -n '__fish_seen_subcommand_from {verb}'"
        if command.words:
            lines.append(f"{seen} -f -a {_quoted(' '.join(command.words))}")
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            choices = f" -x -a {_quoted(' '.join(option.values))}" if option.values else " -r"
            value = choices if option.takes_value else ""
            lines.append(f"{seen} {names}{value} -d {_quoted(option.help)}")
    return "\n".join([*lines, ""])


def _names(command: Command) -> Sequence[str]:
    return [name for option in command.options for name in option.names if name.startswith("--") or len(name) == 2]


def _plain(text: str) -> str:
    """Without what zsh reads as the end of a description."""
    return re.sub(r"[\[\]:]", "", text)


def _quoted(text: str) -> str:
    """In single quotes, as bash, zsh and fish all read them."""
    return "'" + text.replace("\\", "").replace("'", "’") + "'"
