"""The rule for any input: a clear message and exit 0, 1 or 2; no traceback, no hang, nothing executed or left."""

import contextlib
import faulthandler
import io
import os
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

from attune.cli import main

from fuzz.kinds import KINDS

SECONDS, BYTES = 60, 4 << 30
MOST_LINES = 40  # of a message: every problem of a recipe or a manifest is listed
STARTS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "os.startfile")
ALLOWED = (
    "ldconfig",
    "gcc",
    "cc",
    "uname",
    "lscpu",
    "git",
    "nvidia-smi",
    "objdump",
    "ld",
)  # by which libraries look around
_started: list[str] = []
_is_watching = [False]


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _is_watching[0] and event.startswith(STARTS):
        command = str(arguments[0])
        if Path(command).name not in ALLOWED:
            _started.append(f"{event} {arguments!r:.200}")


sys.addaudithook(_watch)


def break_rule(kind: str, numbers: range, folder: Path, is_alone: bool = False) -> Iterator[str]:
    """The cases that break the rule, each in a line or a traceback."""
    good, outside = folder / "good", folder / "outside"
    for path in (good, outside):
        path.mkdir(parents=True)
    KINDS[kind].prepare(good)
    before = _listed(good)
    with contextlib.chdir(outside):
        for number in numbers:
            scratch = folder / "scratch"
            scratch.mkdir()
            if is_alone:
                print(number, file=sys.__stderr__, flush=True)
                faulthandler.dump_traceback_later(SECONDS, exit=True)
            problem = _problem_of(KINDS[kind].damage(good, Random(f"{kind} {number}"), scratch), scratch)
            left = [*outside.iterdir(), *(set(folder.iterdir()) - {good, outside, scratch})]
            if left or _listed(good) != before:
                problem = f"wrote outside its folder: {left}"
            if problem:
                yield f"{kind} {number}: {problem}"
            shutil.rmtree(scratch)


def _listed(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def _problem_of(words: list[str], scratch: Path) -> str:
    out, errors = io.StringIO(), io.StringIO()
    _started.clear()
    tempfile.tempdir = str(scratch)
    _is_watching[0] = True
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = main(words)
    except SystemExit as end:
        code = end.code
    except BaseException:
        return f"{' '.join(words)}\n{traceback.format_exc()}"
    finally:
        _is_watching[0] = False
        tempfile.tempdir = None
    message = errors.getvalue() + out.getvalue()
    if code not in (0, 1, 2) or "Traceback" in message:
        return f"{' '.join(words)} exits with {code}: {message[-2000:]}"
    if code and not message.strip():
        return f"{' '.join(words)} exits with {code} and no message"
    if errors.getvalue().count("\n") > MOST_LINES:
        return f"{' '.join(words)} has {errors.getvalue().count(chr(10))} lines of errors"
    return f"started {_started}" if _started else ""


if __name__ == "__main__":  # a part of `make fuzz`, with limits that a test process cannot have
    import torch

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    kind, first, last, place = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    os.environ["ATTUNE_CACHE"] = f"{place}-cache"
    for broken in break_rule(kind, range(first, last), place, is_alone=True):
        print(broken, flush=True)
    faulthandler.cancel_dump_traceback_later()
