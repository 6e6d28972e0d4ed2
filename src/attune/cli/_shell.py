"""Dispatches a command line to its verb; returns the exit code."""

from __future__ import annotations

import argparse
import importlib
import io
import keyword
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from attune.cli._terminal import local_path
from attune.errors import DISK_FULL, AttuneError, ConfigError, Preempted, RankLost, TrainingError
from attune.processes import preserve_environment, report_failure
from attune.styles import styled

if TYPE_CHECKING:
    from attune.cli._completion import Command

INTRODUCTION = "Fine-tune and evaluate pretrained speech models."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; an AttuneError is printed without traceback."""
    _settle_streams()
    try:
        with preserve_environment():  # a program may run several commands
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # who loses a rank reads our words, not C++ stacks
            code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
        return code
    except AttuneError as error:
        _print_error(error)
        report_failure(str(error), type(error).__name__)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _output_is_closed():
            raise
        return 141  # as a shell reports SIGPIPE: the reader, such as `head`, has exited
    except Exception as error:
        report_failure(str(error), type(error).__name__)
        if not isinstance(error, OSError) or not (error.errno in DISK_FULL or error.filename):
            raise
        _print_os_error(error)
        return 1


def _settle_streams() -> None:
    """A closed stream takes nothing; what a stream cannot encode is written as an escape."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123  # for as long as the process
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # and its number would be given to the next file that is opened
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _print_os_error(error: OSError) -> None:
    if error.errno in DISK_FULL:
        where = f" for {error.filename}" if error.filename else ""
        message = f"Disk full{where} ({error.strerror}). Free some space and run the same command again."
    else:  # of a file or folder that was there and may be used, as far as attune could check before
        message = f"{error.filename}: {error.strerror}. Check the path and its permissions, then run the command again."
    print(message, file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def _print_error(error: AttuneError) -> None:
    """Print the message once: errors that occur on all ranks are printed by rank 0 only."""
    rank = os.environ.get("RANK", "0") if "WORLD_SIZE" in os.environ else "0"  # some clusters set RANK for a job
    chosen = error.is_reporter if isinstance(error, RankLost) else None
    if rank == "0" if chosen is None else chosen:
        print(styled(str(error), "error", sys.stderr), file=sys.stderr)
    elif not isinstance(error, RankLost | TrainingError | Preempted):
        print(f"rank {rank}: {error}", file=sys.stderr)


def verbs() -> list[str]:
    """The names of all verbs; `import` is in `import_.py`, as no file may have that name, `tune-fusion` with _."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return [name.removesuffix("_").replace("_", "-") for name in names if not name.startswith("_")]


def _run(words: list[str]) -> int:
    if not words or words[0].startswith("-"):
        return _run_without_verb(words)
    name, *rest = words
    if name not in verbs():
        from attune.catalog import suggestion

        raise ConfigError(f"Unknown command {name!r}{suggestion(name, verbs())}")
    parser = parser_of(name)
    more_help = getattr(_load(name), "more_help", None)
    if more_help and {"-h", "--help"}.intersection(rest):
        parser.epilog = f"{more_help(rest)}\n\n{parser.epilog}"
    parser.set_defaults(words=words)  # to start this command again as several ranks
    # Intermixed, so that overrides may come before, between and after the options.
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
    parser.register("type", Path, local_path)
    verb.add_arguments(parser)
    return parser


def described_verbs() -> dict[str, Command]:
    """What each verb takes, for completion in a shell."""
    from attune.cli._completion import command_of

    return {name: command_of(_load(name).HELP, parser_of(name)) for name in verbs()}


def _run_without_verb(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="attune",
        usage="attune COMMAND …",
        description=f"{INTRODUCTION}\n\n{_verbs_help()}",
        epilog="Run `attune COMMAND --help` for its options and an example.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
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
        return "(source tree, not installed)"


def _verbs_help() -> str:
    width = max(map(len, verbs()))
    lines = [f"  {name:{width}}  {_load(name).HELP}" for name in verbs()]
    return "\n".join(["commands:", *lines])


def _load(name: str) -> ModuleType:
    module = f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")
    return importlib.import_module(f"attune.cli.{module}")


def _output_is_closed() -> bool:
    try:
        print(flush=True)
    except BrokenPipeError:
        _discard_output()
        return True
    return False


def _discard_output() -> None:
    """Redirect stdout to /dev/null: Python flushes once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
