"""From a command line to one verb and its exit code."""

from __future__ import annotations

import argparse
import errno
import importlib
import keyword
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from attune.errors import AttuneError, ConfigError, Preempted, RankLost, TrainingError
from attune.processes import environment_kept, leave_word

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
INTRODUCTION = "Fine-tune and evaluate pretrained speech models."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; a user's mistake is a message, never a traceback."""
    try:
        with environment_kept():  # a program may run several commands
            code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
        return code
    except AttuneError as error:
        _tell(error)
        leave_word(str(error), type(error).__name__)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        return 141  # what a shell reports for a command whose reader, such as `head`, has left
    except Exception as error:
        leave_word(str(error), type(error).__name__)
        if not isinstance(error, OSError) or error.errno not in NO_ROOM:
            raise
        _tell_of_no_room(error)
        return 1


def _tell_of_no_room(error: OSError) -> None:
    where = f" for {error.filename}" if error.filename else ""
    print(
        f"There is no room left{where} ({error.strerror}). Make room and run the same command again.", file=sys.stderr
    )
    try:
        sys.stdout.flush()
    except OSError:
        _let_output_go()


def _tell(error: AttuneError) -> None:
    """Print the message once: what all ranks meet together is left to the first of them."""
    rank = os.environ.get("RANK", "0")
    if rank == "0":
        print(error, file=sys.stderr)
    elif not isinstance(error, RankLost | TrainingError | Preempted):
        print(f"rank {rank}: {error}", file=sys.stderr)


def verbs() -> list[str]:
    """The names of all verbs; a file may not be called `import.py`, so that verb's is `import_.py`."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return [name.removesuffix("_") for name in names if not name.startswith("_")]


def _run(words: list[str]) -> int:
    if not words or words[0].startswith("-"):
        return _run_without_verb(words)
    name, *rest = words
    if name not in verbs():
        from attune.catalog import suggestion

        raise ConfigError(f"There is no verb {name!r}{suggestion(name, verbs())}")
    parser = parser_of(name)
    parser.set_defaults(words=words)  # for whoever starts this very command again, in other processes
    # Intermixed, so that overrides may stand before, between and after the options.
    return int(_load(name).run(parser.parse_intermixed_args(rest)))


def parser_of(name: str) -> argparse.ArgumentParser:
    """The arguments of one verb."""
    verb = _load(name)
    parser = argparse.ArgumentParser(
        prog=f"attune {name}",
        description=verb.HELP,
        epilog=f"example:\n  {verb.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.add_arguments(parser)
    return parser


def _run_without_verb(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="attune",
        usage="attune VERB …",
        description=f"{INTRODUCTION}\n\n{_verbs_help()}",
        epilog="`attune VERB --help` says more about a verb.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    if parser.parse_args(words).version:
        print(f"attune {_version()}")
        return 0
    parser.print_help(sys.stderr)
    return 2


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("attune-speech")
    except PackageNotFoundError:
        return "(not installed: running from a source tree)"


def _verbs_help() -> str:
    width = max(map(len, verbs()))
    lines = [f"  {name:{width}}  {_load(name).HELP}" for name in verbs()]
    return "\n".join(["verbs:", *lines])


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"attune.cli.{name}_" if keyword.iskeyword(name) else f"attune.cli.{name}")


def _reader_is_gone() -> bool:
    try:
        print(flush=True)
    except BrokenPipeError:
        _let_output_go()
        return True
    return False


def _let_output_go() -> None:
    """Python flushes once more when it exits; what is left has to go somewhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
