"""One writer for a run in an object store: a lease that its holder renews, and that others take over when it is silent.

Where the store knows conditional puts (`If-None-Match`, `If-Match`), as S3 does, two processes can never hold the lease
at once. Where it ignores them, a writer reads back what it wrote, and its number (the fencing token) grows with every
holder: who finds another holder in the store stops. Silence is measured by the watcher's own clock, never by comparing
the clocks of two machines.
"""

import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from attune.errors import AttuneError, CheckpointError
from attune.processes import RUN_ID_VARIABLE
from attune.sources import ObjectStore, Refused

NAME = "attune-writer.json"
RENEWED_SECONDS = 4.0
SILENT_SECONDS = 20.0  # of a holder on another machine, before its lease is taken over
SETTLED_SECONDS = 1.0  # between writing and reading back, where the store knows no conditions


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes to a run."""

    token: int  # grows with every holder
    id: str
    user: str
    host: str
    boot: str  # of the machine: its processes are gone after another one
    pid: int
    launch: str  # a restarted group of one launch goes on where the group before was
    since: str
    renewals: int = 0
    is_released: bool = False

    def __str__(self) -> str:
        return f"{self.user} on {self.host}, process {self.pid}, since {self.since} UTC"


class Lease:
    """A lease that is held, and renewed by a thread until it is released."""

    def __init__(self, store: ObjectStore, writer: Writer, is_conditional: bool) -> None:
        self._store, self.writer, self.is_conditional = store, writer, is_conditional
        self._tag = ""
        self._lost: str | None = None
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def require_held(self) -> None:
        """Refuse to go on when another process has taken over: asked before anything becomes visible or is removed."""
        with self._lock:
            if self._lost is None:
                now = _read(self._store)
                if now is not None and now[0].id != self.writer.id:
                    self._lost = str(now[0])
        if self._lost is not None:
            raise CheckpointError(
                f"{self._store.address} was taken over by {self._lost} while this process was not reachable. "
                "Nothing is lost; this one stops."
            )

    def start(self, tag: str) -> None:
        """Renew it from now on."""
        self._tag = tag
        self._thread.start()

    def release(self) -> None:
        """Let the next one in at once."""
        self._over.set()
        self._thread.join(RENEWED_SECONDS)
        if self._lost is None:
            # Where the store is away, the next one waits until this one is silent; why it ends is not for here to say.
            with suppress(Refused, AttuneError):
                self._put(replace(self.writer, is_released=True))

    def _renew(self) -> None:
        while not self._over.wait(RENEWED_SECONDS):
            with self._lock:
                if self._lost is not None:
                    return
                try:
                    self._put(replace(self.writer, renewals=self.writer.renewals + 1))
                except Refused:
                    now = _read(self._store)
                    if now is None or now[0].id != self.writer.id:
                        self._lost = str(now[0]) if now else "nobody known"
                        return
                    self._tag = now[1]  # an earlier try was written, and its answer lost
                except AttuneError:
                    pass  # the store is away; whoever writes there next reports it

    def _put(self, writer: Writer) -> None:
        if not self.is_conditional:
            now = _read(self._store)
            if now is not None and now[0].id != self.writer.id:
                raise Refused
        self._tag = self._store.write(NAME, _json(writer), only_over=self._tag if self.is_conditional else None)
        self.writer = writer


@contextmanager
def held(store: ObjectStore) -> Iterator[Lease]:
    """Be the only writer meanwhile; refused, with who it is, when there is another."""
    lease, tag = _acquire(store)
    lease.start(tag)
    try:
        yield lease
    finally:
        lease.release()


def _acquire(store: ObjectStore) -> tuple[Lease, str]:
    found = _read(store)
    if found is not None:
        found = _wait_until_free(store, found)
    mine = _this_process(found[0].token + 1 if found else 1)
    with suppress(Refused):  # also when it was written, and the answer lost
        store.write(NAME, _json(mine), only_new=found is None, only_over=found[1] if found else None)
    is_conditional = _knows_conditions(store, mine)
    if not is_conditional:
        time.sleep(SETTLED_SECONDS)
    now = _read(store)
    if now is None or now[0].id != mine.id:
        raise _occupied(store, now[0] if now else mine)
    return Lease(store, mine, is_conditional), now[1]


def _wait_until_free(store: ObjectStore, found: tuple[Writer, str]) -> tuple[Writer, str]:
    """The lease as its last holder left it; refused as soon as the holder gives a sign of life."""
    deadline = time.monotonic() + SILENT_SECONDS
    while not _is_free(found[0]) and time.monotonic() < deadline:
        time.sleep(SETTLED_SECONDS)
        now = _read(store)
        if now is not None and now[0] != found[0]:
            if not now[0].is_released:
                raise _occupied(store, now[0])
            found = now
    return found


def _is_free(writer: Writer) -> bool:
    is_of_this_launch = bool(writer.launch) and writer.launch == os.environ.get(RUN_ID_VARIABLE)
    return writer.is_released or is_of_this_launch or _is_dead(writer)


def _occupied(store: ObjectStore, other: Writer) -> CheckpointError:
    return CheckpointError(f"{store.address} is being trained by {other}. Wait for it, or stop it.")


def _knows_conditions(store: ObjectStore, mine: Writer) -> bool:
    """Whether the store refuses to create an object that is there; if not, it has the same content again."""
    now = store.read(NAME)
    try:
        store.write(NAME, now or _json(mine), only_new=True)
    except Refused:
        return True
    return False


def _is_dead(other: Writer) -> bool:
    """Whether it was a process of this machine that is no more."""
    if other.host != socket.gethostname() or other.boot != _boot():
        return False
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    stat = Path(f"/proc/{other.pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def _this_process(token: int) -> Writer:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    launch = os.environ.get(RUN_ID_VARIABLE, "")
    return Writer(token, uuid.uuid4().hex, _user(), socket.gethostname(), _boot(), os.getpid(), launch, since)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def _boot() -> str:
    """What distinguishes this machine's processes from others': its boot, and in a container its process space."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _read(store: ObjectStore) -> tuple[Writer, str] | None:
    found = store.read_tagged(NAME)
    if found is None:
        return None
    try:
        return Writer(**json.loads(found[0])), found[1]
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"{store.address}/{NAME} is damaged ({error}), so the writing process is unknown. If there is none, "
            "remove that object."
        ) from error


def _json(writer: Writer) -> bytes:
    return json.dumps(asdict(writer), indent=1).encode()
