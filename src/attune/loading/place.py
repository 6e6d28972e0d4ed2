"""Where a run lives: a folder that all ranks share, or an object store that each machine has a copy of."""

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from attune.run import Run
from attune.run_mirror import Mirror, mirrored
from attune.run_store import StoredRun, copy_folder, folder_key, is_stored
from attune.site import Site
from attune.sources import STORE_ADVICE, ObjectStore
from attune.world import World

WRITER = ".writer"  # in the copy that the first rank writes to
PATIENT_SHARE = 0.9  # of --timeout: who waits for the store says so before the other ranks take it for lost


class RunPlace(Protocol):
    """A run's folder on this machine, and how it stays one run for all ranks."""

    run: Run

    def held(self) -> AbstractContextManager[None]:
        """Be the only writer meanwhile; on the first rank."""

    def share(self, world: World) -> None:
        """A barrier after which every rank has what the first has written."""

    def publish(self) -> None:
        """Something worth keeping is written: a checkpoint, the best, the end."""

    def catch_up(self) -> None:
        """Wait until what was published is safe: only then may the folder lose any of it."""

    def settle(self) -> None:
        """Wait until all that is written is safe."""

    def fetch_tensors(self) -> None:
        """Have the tensors of every checkpoint here, not only of the newest and the best."""

    def deliver(self, partial: Path, step: int) -> None:
        """Bring this rank's files of a checkpoint that is being written to where the first rank's are."""


class SharedFolder:
    """A folder that all ranks see: nothing is to be done."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The folder has a lock of its own."""
        yield

    def share(self, world: World) -> None:
        """Wait for the others."""
        world.barrier()

    def publish(self) -> None:
        """It is there."""

    catch_up = settle = fetch_tensors = publish

    def deliver(self, partial: Path, step: int) -> None:
        """They are there."""


class StoredPlace:
    """A run in an object store, and this machine's copy of it."""

    def __init__(self, stored: StoredRun, report: Callable[[str], None]) -> None:
        self._stored, self._report = stored, report
        self._mirror: Mirror | None = None  # of the first rank
        self._token = uuid.uuid4().hex
        self._is_far = False  # from the first rank's folder
        self.run = stored.run

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the lease, restore the copy, and upload what changes until the end."""
        with mirrored(self._stored, self._report) as self._mirror:
            (self.run.folder / WRITER).write_text(self._token)
            yield

    def share(self, world: World) -> None:
        """Bring what the first rank has written to machines that do not see its folder."""
        token, own = world.gather(self._token)[0], self.run.folder / WRITER
        self._is_far = not (own.is_file() and own.read_text() == token)
        if any(world.gather(self._is_far)):
            self.settle()
            world.barrier()
            if self._is_far:
                self._stored.restore()
        world.barrier()

    def publish(self) -> None:
        """Upload in the background, after the upload before."""
        if self._mirror:
            self._mirror.publish()

    def catch_up(self) -> None:
        """Wait for the upload before."""
        if self._mirror:
            self._mirror.wait("the upload before")

    def settle(self) -> None:
        """Upload all that is left, and wait for it."""
        if self._mirror:
            self._mirror.publish()
            self._mirror.wait("the upload")

    def fetch_tensors(self) -> None:
        """Download the tensors that are not here yet."""
        self._stored.fetch_tensors()

    def deliver(self, partial: Path, step: int) -> None:
        """Upload them from a machine that does not have the first rank's folder, whose manifest will name them."""
        if self._is_far:
            for path in partial.iterdir():
                self._stored.store.upload(f"{folder_key(step)}{partial.name.rpartition('-')[2]}/{path.name}", path)
            shutil.rmtree(partial)


def open_place(address: str, site: Site, report: Callable[[str], None], stop_requested: Callable[[], bool]) -> RunPlace:
    """The place that a recipe's `run` names; a store that does not answer is reported, and waited for until a stop."""
    if not is_stored(address):
        return SharedFolder(Path(address))
    patience, advice = PATIENT_SHARE * site.timeout, f"{STORE_ADVICE} --timeout allows longer."
    store = ObjectStore(address, patience, report, stop_requested=stop_requested, advice=advice)
    return StoredPlace(StoredRun(store, copy_folder(address, site.cache)), report)


def fail_status(address: str, site: Site, reason: str, error_kind: str) -> None:
    """Have a launcher's word on ranks that were killed in the status of a run that they began."""
    if not is_stored(address):
        run = Run(Path(address))
        if run.state() in ("running", "failed"):
            run.set_status("failed", reason, error_kind)
        return
    store, name = ObjectStore(address, PATIENT_SHARE * site.timeout, lambda _: None), "status.json"
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(Path(scratch))
        if store.download(name, run.folder / name) and run.state() in ("running", "failed"):
            run.set_status("failed", reason, error_kind)
            store.upload(name, run.folder / name)


def local_run(address: str, site: Site) -> Run:
    """The run's folder on this machine."""
    return Run(copy_folder(address, site.cache)) if is_stored(address) else Run(Path(address))
