"""Writing a run to an object store: the folder is written as any run's is, and its changes are uploaded behind it.

A save waits only while the one before is still being uploaded. At every moment the store has a state that the folder
had: what a checkpoint needs is there before its manifest, the manifest before best.json names it, and what the folder
has removed is removed last.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from attune.errors import AttuneError, CheckpointError, Preempted, SourceError
from attune.lease import NAME, Lease, held
from attune.run_store import (
    BOARD,
    CHECKPOINTS,
    LOG,
    MARK,
    MODEL,
    PATIENCE,
    SEGMENTS,
    StoredRun,
    folder_key,
    manifest_key,
    mark,
    plain_files,
    segments_of,
)
from attune.sources import ObjectStore, replace_pushed
from attune.training import checkpoint

LATE = ("best.json", "status.json")  # they speak of checkpoints
FLUSHED_SECONDS = 5.0  # between two uploads of the log
SEGMENT_BYTES = 1 << 18  # a segment is written again with more lines until it is so large
LONG_SECONDS = 2.0  # a wait that is worth a line


@dataclass(frozen=True, slots=True)
class _Changes:
    """What is new in the folder, as it was at one moment."""

    files: Mapping[str, bytes]
    gone: tuple[str, ...]
    steps: tuple[int, ...]
    gone_steps: tuple[int, ...]


class Mirror:
    """Uploads a run's folder; who holds the lease has one."""

    def __init__(self, stored: StoredRun, lease: Lease, report: Callable[[str], None]) -> None:
        self._stored, self._store, self._run = stored, stored.store, stored.run
        self._lease, self._report = lease, report
        listed = self._store.list()
        self._steps = {found.step for found in stored.checkpoints(listed)}
        self._known = {name: _signature(path) for name, path in self._files().items() if name in listed}
        segments = segments_of(listed)
        self._segment = int(Path(segments[-1]).stem) if segments else 0
        self._logged = sum(listed[name].size for name in segments)
        self._model: object = None
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        self._logging, self._over = threading.Lock(), threading.Event()
        threading.Thread(target=self._flush_log, daemon=True).start()

    def publish(self) -> None:
        """Upload what has changed, in the background; first wait for the upload before, if it still goes on."""
        self.wait("the upload before")
        self._pending = self._pool.submit(self._upload, self._look())

    def wait(self, what: str) -> None:
        """Wait until everything that was published is there."""
        if self._pending is None:
            return
        began = time.monotonic()
        with suppress(TimeoutError):
            self._pending.exception(LONG_SECONDS)
        if not self._pending.done():
            self._report(f"waiting for {what}: {self._store.address}")
        pending, self._pending = self._pending, None
        pending.result()
        if time.monotonic() - began > LONG_SECONDS:
            self._run.log("waited", seconds=round(time.monotonic() - began, 1), reason="upload")

    def close(self) -> None:
        """Upload what is left; nothing more will be."""
        self._over.set()
        try:
            self.publish()
            self.wait("the last upload")
        finally:
            self._pool.shutdown()

    def _files(self) -> dict[str, Path]:
        return {path.relative_to(self._run.folder).as_posix(): path for path in plain_files(self._run.folder)}

    def _look(self) -> _Changes:
        files = self._files()
        changed = {name: path for name, path in files.items() if self._known.get(name) != _signature(path)}
        self._known |= {name: _signature(path) for name, path in changed.items()}
        local = {int(path.name.removeprefix("step-")): path for path in self._run.checkpoints.glob("step-*")
                 if checkpoint.is_step(path)}  # fmt: skip
        whole = [step for step, path in local.items() if step not in self._steps and self._is_whole(step, path)]
        return _Changes(
            {name: path.read_bytes() for name, path in changed.items()},
            tuple(sorted(self._known.keys() - files.keys())),
            tuple(sorted(whole)),
            tuple(sorted(self._steps - local.keys())),
        )

    def _is_whole(self, step: int, folder: Path) -> bool:
        """Whether every file of a checkpoint is here, or was uploaded by a rank on another machine."""
        missing = {name for name in checkpoint.sums_of(folder) if not (folder / name).is_file()}
        token = checkpoint.token_of(folder)
        if not missing or token is None:
            return not missing
        there = f"{folder_key(step)}{token}/"
        return missing <= {name.removeprefix(there) for name in self._store.list(there)}

    def _upload(self, changes: _Changes) -> None:
        self._lease.require_held()
        for name, content in changes.files.items():
            if name not in LATE:
                self._write(name, content)
        for step in changes.steps:
            self._upload_checkpoint(step)
        self._append_log()
        for name in LATE:
            if name in changes.files:
                self._write(name, changes.files[name])
        self._lease.require_held()
        self._upload_model()
        self._remove(changes)

    def _write(self, name: str, content: bytes) -> None:
        """Write what each holder of the lease writes in the same place: not after another took over during a pause."""
        self._lease.require_held()
        self._store.write(name, content)

    def _upload_checkpoint(self, step: int) -> None:
        folder = checkpoint.folder_of(self._run.checkpoints, step)
        attempt = checkpoint.token_of(folder) or f"{self._lease.writer.token:04d}-{uuid.uuid4().hex[:8]}"
        sums = json.loads((folder / checkpoint.MANIFEST).read_text())
        for name in [name for name in sums if (folder / name).is_file()]:
            self._store.upload(f"{folder_key(step)}{attempt}/{name}", folder / name)
        manifest = {"format": 1, "attempt": attempt, "files": sums}
        self._write(manifest_key(step), json.dumps(manifest, indent=1).encode())
        self._steps.add(step)

    def _upload_model(self) -> None:
        """The exported model, and TensorBoard's files, which are only for people."""
        if self._run.model.is_dir() and self._model != _signature(self._run.model):
            replace_pushed(self._run.model, self._store, MODEL)
            self._model = _signature(self._run.model)
        for path in (self._run.folder / BOARD).glob("*"):
            name = f"{BOARD}{path.name}"
            if self._known.get(name) != _signature(path):
                self._known[name] = _signature(path)
                self._store.upload(name, path)

    def _remove(self, changes: _Changes) -> None:
        if not changes.gone and not changes.gone_steps:
            return
        self._lease.require_held()
        gone = [name for name in changes.gone if not name.startswith(BOARD)]
        self._store.delete(gone)
        for step in changes.gone_steps:
            self._store.delete([manifest_key(step)])
            self._store.delete(self._store.list(folder_key(step)))
            self._steps.discard(step)
        for name in gone:
            self._known.pop(name, None)

    def _append_log(self) -> None:
        """Write the lines that are new: the last segment again, with them, or another one."""
        path = self._run.folder / LOG
        with self._logging:
            size = path.stat().st_size if path.is_file() else 0
            if size <= self._logged:
                return
            with path.open("rb") as file:
                file.seek(self._segment)
                content = file.read(size - self._segment)
            content = content[: content.rfind(b"\n") + 1]
            self._write(f"{SEGMENTS}{self._segment:012d}.jsonl", content)
            self._logged = self._segment + len(content)
            if len(content) > SEGMENT_BYTES:
                self._segment = self._logged

    def _flush_log(self) -> None:
        while not self._over.wait(FLUSHED_SECONDS):
            with suppress(AttuneError):  # the next upload reports it
                self._append_log()


def _signature(path: Path) -> tuple[int, int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns, state.st_ino


def remove_leftovers(stored: StoredRun) -> None:
    """Remove what killed uploads have left: files of checkpoints that no manifest names, and parts."""
    listed = stored.store.list(CHECKPOINTS)
    known = {manifest_key(each.step): each for each in stored.checkpoints(listed)}
    named = {each.key(name) for each in known.values() for name in each.sums} | known.keys()
    stored.store.delete(sorted(listed.keys() - named))
    stored.store.abort_uploads()


@contextmanager
def mirrored(stored: StoredRun, report: Callable[[str], None]) -> Iterator[Mirror]:
    """Be the run's only writer: restore its folder, and upload what is written there until the end."""
    _require_own(stored)
    with held(stored.store) as lease:
        stored.store.write(MARK, stored.store.read(MARK) or mark())
        remove_leftovers(stored)
        stored.restore()
        mirror = Mirror(stored, lease, report)
        kind = "conditional puts" if lease.is_conditional else "a lease that is read back (no conditional puts)"
        stored.run.log("writer", token=lease.writer.token, guarded_by=kind)
        try:
            yield mirror
        except Preempted:
            mirror.close()
            raise
        except BaseException as error:
            try:
                mirror.close()
            except AttuneError as failure:  # not in the place of what happened first
                if str(failure) != str(error):
                    report(f"Not everything is in {stored.store.address}: {failure}")
            raise
        mirror.close()


def _require_own(stored: StoredRun) -> None:
    if stored.is_run():
        return
    _require_apart(stored.store.address)
    found = sorted(stored.store.list().keys() - {NAME})
    if found:
        raise CheckpointError(
            f"{stored.store.address} has other objects ({', '.join(found[:4])} …) and is not a run. Use another "
            "prefix: run=s3://BUCKET/NAME."
        )


def _require_apart(address: str) -> None:
    """Refuse a prefix inside a run, which would take what is there for its own."""
    bucket, *parts = address.removeprefix("s3://").split("/")
    for end in range(len(parts)):
        outer = "/".join((f"s3://{bucket}", *parts[:end]))
        with suppress(SourceError):  # such as a prefix that may not be read
            if ObjectStore(outer, PATIENCE, lambda _: None).read(MARK) is not None:
                raise CheckpointError(f"{address} is inside the run {outer}. Use a prefix beside it.")


def put_whole(stored: StoredRun, report: Callable[[str], None]) -> None:
    """Upload a whole run to a new prefix."""
    if sorted(stored.store.list()):
        raise CheckpointError(f"{stored.store.address} is not empty. Choose another prefix.")
    _require_apart(stored.store.address)
    with held(stored.store) as lease:
        stored.store.write(MARK, mark())
        Mirror(stored, lease, report).close()
