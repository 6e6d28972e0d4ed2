"""A run in an object store, as readers find it: `s3://bucket/prefix`.

What is there is complete. A checkpoint counts when its manifest is there, which is written last and removed first and
names the attempt whose files it is of: no writer changes what another has written. All is verified on its way in.

attune-run.json   marks the prefix as a run        checkpoints/step-000400/manifest.json, …/step-000400/ATTEMPT/FILE
attune-writer.json  who writes (see lease.py)      log/OFFSET.jsonl   log.jsonl in segments
model/            as `attune push` writes a model  everything else    as in a run directory
"""

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attune import lease
from attune.errors import CheckpointError, ConfigError
from attune.files import completed, one_at_a_time, write_text
from attune.run import STORE, Run
from attune.sources import Cache, ObjectStore, Refused, StoredObject, TransferProgress
from attune.training import checkpoint

MARK = "attune-run.json"
LOG, SEGMENTS = "log.jsonl", "log/"
CHECKPOINTS, MODEL, BOARD, INDEXES = "checkpoints/", "model/", "tensorboard/", "data/"
COPIES = "runs"  # in the cache
LOCK, COPIED = ".copying", ".copied"  # in a copy: held while it changes; the mark of the run that it is of
PATIENCE = 60.0  # of a command that only reads
FORMAT = 1
COLLISIONS = 20  # of evaluations that end at once
LISTINGS = 5  # of a run that is being written: what was listed may be removed before it is read
_SEGMENT = re.compile(r"log/\d{12}\.jsonl")
_MANIFEST = re.compile(r"checkpoints/step-(\d{6,})/manifest\.json")


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint that is complete in the store: its attempt, and the sums of its files."""

    step: int
    attempt: str
    sums: Mapping[str, str]

    def key(self, name: str) -> str:
        """The name of the object with one of its files."""
        return f"{folder_key(self.step)}{self.attempt}/{name}"


def folder_key(step: int) -> str:
    """Where everything of a checkpoint is."""
    return f"{CHECKPOINTS}step-{step:06d}/"


def manifest_key(step: int) -> str:
    """The object that makes a checkpoint count."""
    return f"{folder_key(step)}{checkpoint.MANIFEST}"


def is_stored(place: str) -> bool:
    """Whether a run's place is an object store."""
    return place.startswith("s3://")


def require_folder(place: str, instead: str) -> Path:
    """The folder of a run, for what several runs lie in; a run in an object store is refused."""
    if is_stored(place):
        raise ConfigError(f"run={place} is in an object store, and a folder is needed here. Set {instead}.")
    return Path(place)


def copy_folder(address: str, cache: Cache, purpose: str = "") -> Path:
    """Where this machine keeps its copy of a stored run; a reader's is another than the writer's."""
    name = re.sub(r"[^\w.-]", "_", address.rstrip("/").rpartition("/")[2])[-60:] or "run"
    key = hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:12]
    return cache.folder / COPIES / f"{key}{purpose}" / name


class StoredRun:
    """The objects of a run, and a folder of this machine to copy them to."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self.store, self.run = store, Run(folder)

    def is_run(self) -> bool:
        """Whether there is a run at this address."""
        return self.store.read(MARK) is not None

    def checkpoints(self, listed: Iterable[str]) -> list[StoredCheckpoint]:
        """The checkpoints that count, by rising step; a manifest that is damaged or gone does not."""
        steps = sorted(int(found[1]) for found in map(_MANIFEST.fullmatch, listed) if found)
        return [found for found in map(self._manifest, steps) if found]

    def _manifest(self, step: int) -> StoredCheckpoint | None:
        try:
            saved = json.loads(self.store.read(manifest_key(step)) or b"")
            return StoredCheckpoint(step, saved["attempt"], dict(saved["files"]))
        except (ValueError, KeyError, TypeError):
            return None

    def restore(self, which: str = "") -> None:
        """Make the folder what the store has, but model/, TensorBoard, and most tensors.

        Those of the newest sound checkpoint and of the best are brought, or of `which`: best, last or step-N.
        """
        with self._alone():
            for _ in range(LISTINGS):
                listed = self.store.list()
                self._copy_files(listed)
                self._copy_log(listed)
                if self._copy_wanted(which, listed) or not self._has_moved_on(listed):
                    return

    def restore_all(self) -> None:
        """Make the folder everything that the store has."""
        self.restore()
        listed = self.store.list()
        for name in listed:
            if name.startswith((MODEL, BOARD)):
                self._copy(name, listed[name])
        for stored in self.checkpoints(listed):
            if not self.fetch(stored) and self._manifest(stored.step) is None:  # removed meanwhile
                shutil.rmtree(checkpoint.folder_of(self.run.checkpoints, stored.step))

    def fetch_tensors(self) -> None:
        """Bring the tensors of every checkpoint, for who needs more than the newest and the best."""
        with self._alone():
            for stored in self.checkpoints(self.store.list(CHECKPOINTS)):
                self.fetch(stored)

    def fetch(self, stored: StoredCheckpoint, is_partial: bool = False) -> bool:
        """Bring a checkpoint, unless it is here; whether it is sound. A partial one is without its tensors."""
        final = checkpoint.folder_of(self.run.checkpoints, stored.step)
        inside = tuple(name for name in stored.sums if Path(name).name == name)
        names = (checkpoint.PROGRESS,) if is_partial else inside
        is_here = checkpoint.sums_of(final) == dict(stored.sums) and all((final / name).is_file() for name in names)
        if is_here and (is_partial or checkpoint.damage(final) is None):
            return True
        partial = self.run.checkpoints / f".{final.name}.part-{uuid.uuid4().hex[:8]}"
        partial.mkdir(parents=True)
        try:
            for name in names:
                self.store.download(stored.key(name), partial / name)
            write_text(partial / checkpoint.MANIFEST, json.dumps(dict(stored.sums), indent=1))
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return is_partial or checkpoint.damage(final) is None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process of this machine copies at a time; those after it find everything here."""
        with one_at_a_time(self.run.folder / LOCK):
            self._clear_if_other()
            write_text(self.run.folder / STORE, self.store.address)
            yield

    def _clear_if_other(self) -> None:
        """Empty a copy that is of an earlier run at this address."""
        known, now = self.run.folder / COPIED, (self.store.read(MARK) or b"").decode()
        if known.is_file() and known.read_text() == now:
            return
        for path in self.run.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        write_text(known, now)

    def _copy_files(self, listed: Mapping[str, StoredObject]) -> None:
        plain = {name: each for name, each in listed.items() if is_plain(name)}
        for name, each in plain.items():
            self._copy(name, each)
        for path in plain_files(self.run.folder):
            if path.relative_to(self.run.folder).as_posix() not in plain:
                path.unlink()

    def _copy(self, name: str, stored: StoredObject) -> None:
        path = self.run.folder / name
        if name.startswith("/") or ".." in Path(name).parts:
            raise CheckpointError(f"{self.store.address} has an object named {name!r}, which is not a file of a run.")
        if not _is_same(path, stored):
            self.store.download(name, path)

    def _copy_log(self, listed: Mapping[str, StoredObject]) -> None:
        with completed(self.run.folder / LOG) as partial, partial.open("wb") as file:
            for name in segments_of(listed):
                file.write(self.store.read(name) or b"")

    def _copy_wanted(self, which: str, listed: Mapping[str, StoredObject]) -> bool:
        """Copy the checkpoints; whether those with tensors are sound."""
        best, step = self.run.best(), which.removeprefix("step-")
        steps = {best.step} if best and which in ("", "best") else {int(step)} if step.isdigit() else set()
        needs_newest = which in ("", "last") or (which == "best" and best is None)
        return self._copy_checkpoints(self.checkpoints(listed), steps, needs_newest)

    def _has_moved_on(self, listed: Mapping[str, StoredObject]) -> bool:
        """Whether the run has other checkpoints than were listed."""
        return manifests_of(self.store.list(CHECKPOINTS)) != manifests_of(listed)

    def _copy_checkpoints(self, stored: list[StoredCheckpoint], steps: set[int], needs_newest: bool) -> bool:
        """Some with their tensors, and the newest sound one; of the others, what tells how they scored."""
        self.run.checkpoints.mkdir(exist_ok=True)
        for each in reversed(stored):
            is_needed = needs_newest or each.step in steps
            is_sound = self.fetch(each, is_partial=not is_needed)
            needs_newest &= not is_sound
            steps = steps - {each.step} if is_sound else steps
        names = {checkpoint.folder_of(self.run.checkpoints, each.step).name for each in stored}
        for folder in [path for path in self.run.checkpoints.iterdir() if path.name not in names]:
            shutil.rmtree(folder, ignore_errors=True)
        return not steps and not needs_newest


def manifests_of(listed: Iterable[str]) -> list[str]:
    """The objects that make checkpoints count."""
    return sorted(filter(_MANIFEST.fullmatch, listed))


def segments_of(listed: Iterable[str]) -> list[str]:
    """The objects that the log is in, in their order; not what people have put beside them."""
    return sorted(filter(_SEGMENT.fullmatch, listed))


def is_plain(name: str) -> bool:
    """Whether an object or a file is copied as it is: not indexes, nor what is hidden or half written."""
    apart = (SEGMENTS, CHECKPOINTS, MODEL, BOARD, INDEXES)
    is_hidden = name.startswith(".") or "/." in name
    return not (name.startswith(apart) or name in (MARK, lease.NAME, LOG) or name.endswith("/") or is_hidden)


def plain_files(folder: Path) -> Iterator[Path]:
    """The files of a run directory that are copied one by one."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and is_plain(path.relative_to(folder).as_posix()):
            yield path


def mark() -> bytes:
    """The content of the object that marks a run."""
    return json.dumps({"format": FORMAT, "id": uuid.uuid4().hex}).encode()


def open_stored(address: str, cache: Cache, patience: float) -> StoredRun:
    """A run that is only read, and this machine's copy for readers; a wait for the store is shown as progress is."""

    def report(text: str) -> None:
        cache.watch(TransferProgress(address, 0, None, text, verb="waiting"))

    return StoredRun(ObjectStore(address, patience, report), copy_folder(address, cache, "-read"))


def locate_stored(address: str, cache: Cache, which: str = "best") -> Path | None:
    """A copy of the run at an address, with one of its checkpoints or none; None if there is no run."""
    if not is_stored(address) or cache.is_offline:
        return None
    found = open_stored(address, cache, PATIENCE)
    if not found.is_run():
        return None
    found.restore(which)
    return found.run.folder


def put_file(run: Run, path: Path) -> None:
    """Upload a file of a reader's copy."""
    ObjectStore(run.address or "", PATIENCE, lambda _: None).upload(path.relative_to(run.folder).as_posix(), path)


def put_results(run: Run, split: str) -> None:
    """Upload the predictions of a split, with the files they name, and its scores beside those that are there."""
    store = ObjectStore(run.address or "", PATIENCE, lambda _: None)
    for path in run.predictions_folder.rglob("*"):
        name = path.relative_to(run.folder)
        if path.is_file() and (path == run.predictions(split) or len(name.parts) > 2):
            store.upload(name.as_posix(), path)
    for _ in range(COLLISIONS):
        with suppress(Refused):  # another evaluation has just put its own
            _put_scores(store, split, run.scores()[split])
            return
    raise CheckpointError(f"{store.address}/scores.json is being changed all the time. Run the same command again.")


def _put_scores(store: ObjectStore, split: str, scores: Mapping[str, Any]) -> None:
    found = store.read_tagged("scores.json")
    try:
        known = dict(json.loads(found[0])) if found else {}
    except (ValueError, TypeError, RecursionError):  # a damaged one has none, as in a folder
        known = {}
    content = (json.dumps({**known, split: scores}, indent=1, ensure_ascii=False) + "\n").encode()
    store.write("scores.json", content, only_new=found is None, only_over=found[1] if found else None)


def locate_recipe(address: str, cache: Cache) -> Path | None:
    """The recipe of the run at an address, without the rest; None if there is no run."""
    if not is_stored(address):
        return None
    found = open_stored(address, cache, PATIENCE)
    path = found.run.folder / "recipe.yaml"
    return path if found.is_run() and found.store.download(path.name, path) else None


def _is_same(path: Path, stored: StoredObject) -> bool:
    """Whether a file is what the store has, where its tag is an MD5; else it is copied again."""
    if not path.is_file() or path.stat().st_size != stored.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest() == stored.tag.strip('"')
