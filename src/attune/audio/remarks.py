"""Catch what the MP3 decoder prints, so that only what concerns the samples is shown.

libsndfile's decoder prints what it finds odd from C, straight to stderr. For a moment C code gets another `stderr` to
write to. The file descriptor stays as it is, so Python, its other threads and new processes write where they always do;
and what is not the decoder's is passed on. Where C's `stderr` cannot be found, nothing is caught.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

DECODER = "libmpg123"  # is in each of its lines
NAMES = ("stderr", "__stderrp")  # of the variable in C's library: Linux, macOS

_lock = Lock()


@contextmanager
def decoder_remarks() -> Iterator[list[str]]:
    """A list that has, afterwards, the lines that the MP3 decoder printed meanwhile."""
    remarks: list[str] = []
    stderr = _c_stderr()
    # Nobody waits for the lock: a process forked from a thread that holds it would wait forever.
    if stderr is None or not _lock.acquire(blocking=False):
        yield remarks
        return
    library, text, size = ctypes.CDLL(None), ctypes.c_void_p(), ctypes.c_size_t()
    library.open_memstream.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(library.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    usual, stderr.value = stderr.value, stream.value or stderr.value
    try:
        yield remarks
    finally:
        stderr.value = usual
        _lock.release()
        if stream:
            library.fclose(stream)
            lines = ctypes.string_at(text, size.value).decode(errors="replace").splitlines(keepends=True)
            library.free(text)
            remarks += [line for line in lines if DECODER in line]
            show([line for line in lines if DECODER not in line])


def show(lines: list[str]) -> None:
    """Print lines where they would have been printed."""
    if lines:
        sys.stderr.write("".join(lines))


@cache
def _c_stderr() -> ctypes.c_void_p | None:
    """The variable in which C's library has its stderr."""
    for name in NAMES:
        try:
            library = ctypes.CDLL(None)
            return ctypes.c_void_p.in_dll(library, name) if library.open_memstream else None
        except (AttributeError, OSError, TypeError, ValueError):  # another system, or another library
            continue
    return None
