"""The run directory: recipe, environment, log and results of one training. The same command continues it.

recipe.yaml  sources.lock.json  environment.json  command.txt  log.jsonl  status.json  best.json  tensorboard/
data/          indexes of the manifests           task/         what the task learned from the training set
checkpoints/step-004000/                          predictions/SPLIT.jsonl   scores.json
model/         the exported model
"""

import fcntl
import importlib.metadata
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import msgspec

from attune import recipe as recipes
from attune.errors import CheckpointError
from attune.files import explain_write_errors, one_at_a_time, split_lines, write_text
from attune.metrics import Metric, Scores
from attune.recipe import Recipe
from attune.report.tables import scores_from_json, scores_html, scores_table
from attune.sources import without_secrets

Record = TypeVar("Record")
PACKAGES = ("attune-speech", "torch", "transformers", "numpy", "soundfile", "soxr", "safetensors", "sentencepiece")
UNPLOTTED = (  # of lines of the log
    *("time", "event", "step", "split", "best", "problems", "utterances", "sample_of"),
    *("audio_seconds", "decoding_seconds"),
)
STORE = ".store"  # in a folder that is this machine's copy of a run in an object store: its address
TUNED = "fusion.json"  # what `attune tune-fusion` chose
DYING_SECONDS = 3.0  # for which the readers of a killed process may keep its lock


@dataclass(frozen=True, slots=True)
class Best:
    """The best checkpoint so far, and by which score; its metric, and so the direction, is the task's to declare."""

    metric: str  # with the split: dev.wer
    value: float
    step: int


@dataclass(frozen=True, slots=True)
class Start:
    """What a run began with: its data, the tensors that the pretrained weights did not give, its noises."""

    data: str  # a fingerprint
    new_tensors: tuple[str, ...]
    recordings: str = ""  # a fingerprint of the noises and rooms, where there are any
    parts: Mapping[str, str] = field(default_factory=dict)  # manifest or shard → a fingerprint of its content
    dev: Mapping[str, str] = field(default_factory=dict)  # the same of what is scored


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a run, as the process that last trained it wrote it."""

    state: str  # running | done | preempted | failed
    error_kind: str = ""  # of a failed run: the name of the error, such as TrainingError
    message: str = ""
    pid: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class _FormerStatus:
    """A status before 0.1.0, whose reason began with the kind of error."""

    state: str
    reason: str
    pid: int
    time: float

    def as_now(self) -> Status:
        kind, separator, message = self.reason.partition(": ")
        has_kind = self.state == "failed" and bool(separator) and kind.isidentifier()
        error_kind, message = (kind, message) if has_kind else ("", self.reason)
        return Status(self.state, error_kind, message, self.pid, self.time)


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run directory."""

    folder: Path

    def __repr__(self) -> str:
        """Its state and best checkpoint, and a table of its scores."""
        columns = self._columns()
        return f"{self._headline()}\n{scores_table(columns, has_counts=False)}" if columns else self._headline()

    def _repr_html_(self) -> str:
        return scores_html(self._headline(), self._columns())

    def _headline(self) -> str:
        best = self.best()
        found = f", best {best.metric} {best.value:.2f} at step {best.step}" if best else ""
        return f"Run {self.name}: {self.state() or 'not started'}{found}"

    def _columns(self) -> dict[str, Scores]:
        return {name: scores_from_json(saved) for name, saved in self.scores().items()}

    @property
    def address(self) -> str | None:
        """The address in an object store that the folder is a copy of."""
        path = self.folder / STORE
        return path.read_text(encoding="utf-8") if path.is_file() else None

    @property
    def name(self) -> str:
        """What to call the run: its address, or its folder."""
        return self.address or str(self.folder)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.folder / "checkpoints"

    @property
    def data(self) -> Path:
        """Where indexes of the manifests are."""
        return self.folder / "data"

    @property
    def task(self) -> Path:
        """What the task learned from the training utterances."""
        return self.folder / "task"

    @property
    def assets(self) -> Path:
        """What the family must know beside weights, such as an architecture and a tokenizer."""
        return self.folder / "assets"

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.folder / "model"

    @property
    def lock(self) -> Path:
        """Exactly what was used of everything that the recipe names."""
        return self.folder / "sources.lock.json"

    @property
    def predictions_folder(self) -> Path:
        """Where predictions are, and the files that they name."""
        return self.folder / "predictions"

    def predictions(self, split: str) -> Path:
        """The predictions for a split."""
        return self.predictions_folder / f"{split}.jsonl"

    def recipe(self) -> Recipe:
        """The recipe that made this run."""
        return recipes.load(self.folder / "recipe.yaml", []).recipe

    def log(self, kind: str, **values: object) -> None:
        """Append a line to log.jsonl."""
        # JSON has no word for a loss that is not finite.
        known = {
            name: None if isinstance(each, float) and not math.isfinite(each) else each for name, each in values.items()
        }
        line = without_secrets(json.dumps({"time": round(time.time(), 3), "event": kind, **known}, default=str))
        with (self.folder / "log.jsonl").open("ab+") as file:
            file.write(f"{_line_end(file)}{line}\n".encode())

    def log_lines(self) -> Iterator[dict[str, Any]]:
        """The lines of the log; one that was cut off or is damaged is left out."""
        text = ""
        with suppress(FileNotFoundError):  # it is not there yet, or not any more
            text = (self.folder / "log.jsonl").read_text(encoding="utf-8", errors="replace")
        for line in split_lines(text):
            with suppress(ValueError, RecursionError):
                yield msgspec.convert(json.loads(line, parse_constant=lambda _: None), dict[str, Any])  # NaN: null

    def history(self) -> list[dict[str, Any]]:
        """What was logged at each step, as rows: loss, lr, and scores such as dev.wer where there are any."""
        rows: dict[int, dict[str, Any]] = {}
        for line in self.log_lines():
            if line.get("event") in ("step", "scores") and isinstance(line.get("step"), int):
                prefix = f"{line.get('split')}." if line["event"] == "scores" else ""
                figures = {f"{prefix}{name}": value for name, value in line.items() if name not in UNPLOTTED}
                rows.setdefault(line["step"], {"step": line["step"]}).update(figures)
        return [rows[step] for step in sorted(rows)]

    def set_status(self, state: str, message: str = "", error_kind: str = "") -> None:
        """Write the state of the run: running, done, preempted or failed."""
        status = Status(state, error_kind, without_secrets(message), os.getpid(), round(time.time(), 3))
        write_text(self.folder / "status.json", json.dumps(asdict(status), indent=1) + "\n")

    def status(self) -> "Status | None":
        """What status.json has, if there is one and it can be read."""
        path = self.folder / "status.json"
        former = _record(path, _FormerStatus)
        return former.as_now() if former else _record(path, Status)

    def state(self) -> str | None:
        """The state alone."""
        status = self.status()
        return status.state if status else None

    def remember_start(self, start: "Start") -> None:
        """Write what must be unchanged when the run is resumed."""
        write_text(self.folder / "start.json", json.dumps(asdict(start), indent=1) + "\n")

    def start(self) -> "Start":
        """What the run began with."""
        start = _record(self.folder / "start.json", Start)
        if start is None:
            raise CheckpointError(
                f"{self.folder / 'start.json'} is missing or unreadable, so the training data cannot be compared. "
                "Restore it, or start a new run with model.weights set to this one."
            )
        return start

    def best(self) -> Best | None:
        """The best checkpoint that was recorded, if any; a resumed run finds it again where the record is lost."""
        return _record(self.folder / "best.json", Best)

    def is_best(self, name: str, metric: Metric, value: float) -> bool:
        """Whether a score beats the best that is on disk; worse, equal and NaN never do."""
        best = self.best()
        return metric.is_better(value, best.value if best and best.metric == name else math.nan)

    def offer_best(self, name: str, metric: Metric, value: float, step: int) -> bool:
        """Record a checkpoint as the best if it is; `name` is the metric with its split: dev.wer."""
        if not self.is_best(name, metric, value):
            return False
        write_text(self.folder / "best.json", json.dumps(asdict(Best(name, value, step)), indent=1) + "\n")
        return True

    def forget_best(self) -> None:
        """Remove the record of the best checkpoint."""
        (self.folder / "best.json").unlink(missing_ok=True)

    def tuned_decoding(self) -> tuple[tuple[str, Any], ...]:
        """The settings of `decode` that were chosen on the dev set, if any: `attune tune-fusion` writes them."""
        found = (_record(self.folder / TUNED, dict[str, Any]) or {}).get("decode")
        return tuple(found.items()) if isinstance(found, dict) else ()

    def add_scores(self, name: str, scores: Mapping[str, Any]) -> None:
        """Put one evaluation's result into scores.json beside the others."""
        with one_at_a_time(self.folder / ".scores"):  # of two evaluations that end at once, each keeps the other's
            known = {**self.scores(), name: scores}
            write_text(self.folder / "scores.json", json.dumps(known, indent=1, ensure_ascii=False) + "\n")

    def scores(self) -> dict[str, Any]:
        """Every evaluation's result, by the name of what was scored."""
        return _record(self.folder / "scores.json", dict[str, dict[str, Any]]) or {}


def _line_end(log: BinaryIO) -> str:
    """What the last line of a log lacks where a full disk or a power cut has cut it off."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - 1))
    return "" if log.read() in (b"", b"\n") else "\n"


def _record(path: Path, kind: type[Record]) -> Record | None:
    """A record of a run, if it is there, whole, and has what it should."""
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), kind)
    except (OSError, ValueError, RecursionError, OverflowError):
        return None


@contextmanager
def claimed(run: Run, recipe: Recipe, command: Sequence[str], reschedule: bool) -> Iterator[list[recipes.Difference]]:
    """Make the run directory, or check that it is this recipe's, and keep every other process out meanwhile.

    Yields the settings that changed: of what is looked at, saved and logged, and of a schedule, with `reschedule`.
    """
    refused = explain_write_errors(run.folder, "Set run=… to a writable folder with free space.", CheckpointError)
    with ExitStack() as held:
        with refused:
            _require_own(run.folder)
            run.folder.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((run.folder / ".lock").open("w"))
            if not _locked(lock):
                raise CheckpointError(f"Another process is training in {run.name}. Wait for it, or stop it.")
            changed = _check_recipe(run, recipe, reschedule)
            _introduce(run, recipe, command)
        yield changed


def _require_own(folder: Path) -> None:
    """Refuse a folder that holds something other than a run: a run empties and overwrites what is in its way."""
    place = folder.resolve()
    if place in (Path("/"), Path.home().resolve(), Path.cwd()):
        raise CheckpointError(f"run: {folder} cannot be a run folder. Use a folder of its own, e.g. run=runs/NAME.")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    is_run = STORE in names or ("recipe.yaml" in names and not names.isdisjoint({".lock", "status.json"}))
    found = sorted(name for name in names if not name.startswith("."))  # a launcher leaves hidden ones
    if found and not is_run:
        some = ", ".join(found[:4])
        raise CheckpointError(
            f"run: {folder} has other files ({some} …), which a run would overwrite. Use a new or empty folder, "
            "e.g. run=runs/NAME."
        )


def _introduce(run: Run, recipe: Recipe, command: Sequence[str]) -> None:
    """Write the recipe, the machine and the command before anything starts."""
    write_text(run.folder / "recipe.yaml", recipes.resolved_yaml(recipe))
    write_text(run.folder / "environment.json", json.dumps(environment(), indent=1) + "\n")
    with (run.folder / "command.txt").open("a", encoding="utf-8") as file:
        file.write(without_secrets(shlex.join(command)) + "\n")
    run.set_status("running")


def _locked(lock: IO[str]) -> bool:
    """Whether the lock is ours now. A killed process's readers have it too, and die a moment after it."""
    deadline = time.monotonic() + DYING_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)


def _check_recipe(run: Run, recipe: Recipe, reschedule: bool) -> list[recipes.Difference]:
    """Refuse a directory that another recipe made; a changed schedule is let through only when asked for.

    What is looked at, saved and logged may change: the log has it, as dev scores before and after may not compare.
    """
    if not (run.folder / "recipe.yaml").exists():
        return []
    free = {"run", *recipes.DEVICE_KEYS}
    found = [change for change in recipes.differences(run.recipe(), recipe) if change.key not in free]
    if found and not any(run.checkpoints.glob("step-*")):
        run.lock.unlink(missing_ok=True)  # nothing is lost: a run that has saved nothing begins anew
        return []
    observed = [change for change in found if recipes.is_observer(change.key, recipe.train)]
    rescheduled = [change for change in found if change.key in recipes.SCHEDULE_KEYS]
    other = [change for change in found if change not in (*observed, *rescheduled)]
    if other:
        raise CheckpointError(
            f"{run.name} was made by another recipe:\n{_listed(other)}\nUse another folder (run=…), or the "
            "original recipe."
        )
    if rescheduled and not reschedule:
        raise CheckpointError(
            f"{run.name} was started with another schedule:\n{_listed(rescheduled)}\nThe learning rate would jump. "
            "To continue anyway, add --reschedule."
        )
    for change in found:
        run.log("changed", key=change.key, old=change.old, new=change.new)
    return found


def _listed(changes: Sequence[recipes.Difference]) -> str:
    return "\n".join(f"  {change.key}: {change.old} → {change.new}" for change in changes)


def environment() -> dict[str, Any]:
    """Versions, commit and devices, for whoever has to reproduce the run."""
    import torch

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions,
        "commit": _commit(),
        "devices": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "cores": os.cpu_count(),
        "executable": Path(sys.executable).name,
    }


def _commit() -> str | None:
    """The commit attune runs from, when it runs from a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
