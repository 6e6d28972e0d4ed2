"""Ray: the same work on the machines of a cluster. Ray starts and restarts the processes; the rest is ours.

A run resumes from its own checkpoints, never from Ray's. So the run must be where every node finds it: in an object
store, or in a folder that every node sees, which is checked before anything starts. An actor beside the driver passes
on what Ray does not: a stop signal to the workers, and from them why they failed and what they have come to.
"""

import importlib
import logging
import os
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from attune.errors import AttuneError, CheckpointError, ConfigError, RankLost, ReaderLost
from attune.files import explain_write_errors
from attune.launch.group import Outcome
from attune.launch.heartbeat import monitored
from attune.launch.ranks import GRACE_SECONDS
from attune.launch.stopping import INTERRUPTED, call_at_stop_signals
from attune.processes import RUN_ID_VARIABLE, cores
from attune.world import World

LOCAL = "local"  # an address: a cluster on this machine only, which ends with this process
FAILURE, STOP, RESULT = "failure", "stop", "result"  # names of notes
SEEN_SECONDS = 10.0  # a network file system may show a new file late


@dataclass(frozen=True, slots=True)
class Cluster:
    """The address of the cluster, the number of workers (a range: as many as there are), and their device."""

    address: str
    workers: tuple[int, int]
    device: str = "auto"  # auto | cpu | cuda
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class Work:
    """What every worker does: `do(world, stop_requested, report)` until it is done, or has to save and exit.

    `report` sends metrics to Ray, and is called equally often on every rank. `folder` must be seen by every node.
    """

    folder: Path | None  # None: nothing is shared but an object store
    do: Callable[[World, Callable[[], bool], Callable[[Mapping[str, float]], None]], Any]
    on_loss: Callable[[str, bool], None]


@dataclass(frozen=True, slots=True)
class Ended:
    """How the work ended, and what `do` returned on the first rank."""

    outcome: Outcome
    result: Any = None


class _Notes:
    """An actor: what the driver and its workers tell each other."""

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}

    def put(self, name: str, value: Any) -> None:
        self.notes[name] = value

    def get(self, name: str) -> Any:
        return self.notes.get(name)


def train_on_ray(work: Work, cluster: Cluster, restarts: int) -> Ended:
    """Run `work` on the cluster's workers; a group that loses one is restarted, at most `restarts` times."""
    with connect_cluster(cluster) as ray, tempfile.TemporaryDirectory(prefix="attune-ray-") as scratch:
        if work.folder:
            with explain_write_errors(work.folder, "Set run=… to a folder that all nodes can write.", CheckpointError):
                work.folder.mkdir(parents=True, exist_ok=True)
            require_shared_folder(ray, work.folder)
        notes = ray.remote(num_cpus=0)(_Notes).options(scheduling_strategy=_here(ray)).remote()
        with _pass_on_stop_signals(ray, notes):
            failure = _fit(ray, work, notes, cluster, restarts, work.folder / ".ray" if work.folder else Path(scratch))
        word, result = ray.get([notes.get.remote(FAILURE), notes.get.remote(RESULT)])
        if word:
            return Ended(Outcome(**word))
        return Ended(Outcome(1, failure)) if failure else Ended(Outcome(0), result)


def _here(ray: Any) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def _fit(ray: Any, work: Work, notes: Any, cluster: Cluster, restarts: int, storage: Path) -> str:
    """The error that Ray reports, or an empty string. No checkpoint of Ray's is ever in its storage."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    least, most = cluster.workers
    scaling = ScalingConfig(
        num_workers=most if least == most else (least, most),  # type: ignore[arg-type]
        use_gpu=uses_gpu(ray, cluster.device),
    )
    trainer = TorchTrainer(
        _worker,
        train_loop_config={
            "work": work,
            "notes": notes,
            "launch": os.environ[RUN_ID_VARIABLE],
            "timeout": cluster.timeout,
        },
        scaling_config=scaling,
        torch_config=TorchConfig(timeout_s=int(cluster.timeout + GRACE_SECONDS)),
        run_config=RunConfig(
            name=uuid.uuid4().hex[:12],  # always new, so that Ray never restores a state of its own
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=restarts),
        ),
    )
    try:
        trainer.fit()
    except Exception as error:  # a cluster fails in many ways; any of them ends the run
        return _first_line(error)
    return ""


def _first_line(error: Exception) -> str:
    failures = getattr(error, "worker_failures", {})
    text = [f"Worker {rank}: {type(each).__name__}: {each}" for rank, each in sorted(failures.items())] or [str(error)]
    return text[0].strip().splitlines()[0]


def _worker(config: Mapping[str, Any]) -> None:
    """One rank. Ray has created the process group; only rank, world size and device are taken from it."""
    import torch.distributed as dist
    from ray.train import report
    from ray.train.torch import get_device

    logging.getLogger("botocore").setLevel(logging.WARNING)  # Ray shows what libraries would only note
    work, notes, ray = config["work"], config["notes"], _import_ray()
    if ray.get(notes.get.remote(FAILURE)):
        return  # a worker of the previous group failed for good, which a restart does not change
    world = World(dist.get_rank(), dist.get_world_size(), get_device())
    os.environ.update({"RANK": str(world.rank), "WORLD_SIZE": str(world.size), RUN_ID_VARIABLE: config["launch"]})
    with monitored(world, config["timeout"], work.on_loss) as seen:
        try:
            result = work.do(seen, _stop_noted(ray, notes), lambda figures: report(dict(figures)))
        except (RankLost, ReaderLost):
            raise  # worth a restart
        except AttuneError as error:
            word = {"code": error.exit_code, "reason": str(error), "error_kind": type(error).__name__}
            ray.get(notes.put.remote(FAILURE, word))
            if error.exit_code != 75:  # all ranks stop together when preempted, but an error may be one rank's own
                raise
        else:
            if world.is_first:
                ray.get(notes.put.remote(RESULT, result))


def _stop_noted(ray: Any, notes: Any) -> Callable[[], bool]:
    """Whether a stop was noted, asked at most once a second; a step never waits for the answer."""
    asked = [time.monotonic(), notes.get.remote(STOP)]
    stops = threading.Event()

    def stop_requested() -> bool:
        if not stops.is_set() and time.monotonic() - asked[0] > 1.0 and ray.wait([asked[1]], timeout=0)[0]:
            if ray.get(asked[1]):
                stops.set()
            asked[:] = time.monotonic(), notes.get.remote(STOP)
        return stops.is_set()

    return stop_requested


@contextmanager
def _pass_on_stop_signals(ray: Any, notes: Any) -> Iterator[None]:
    """A stop signal to this process is noted for every worker; a second Ctrl-C ends it at once."""
    received, over = threading.Event(), threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and received.is_set():
            os._exit(INTERRUPTED)  # Ray ends the workers of a driver that is gone
        received.set()

    def pass_on() -> None:  # not in the handler: Ray may be in the middle of something there
        while not over.wait(0.2):
            if received.is_set():
                ray.get(notes.put.remote(STOP, True))
                return

    before = call_at_stop_signals(stop)
    threading.Thread(target=pass_on, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def connect_cluster(cluster: Cluster) -> Iterator[Any]:
    """Connect to the cluster at an address, or start a local one; never use one that Ray happens to find."""
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # else every line is printed twice
    os.environ.setdefault(RUN_ID_VARIABLE, uuid.uuid4().hex[:12])
    ray = _import_ray()
    own: dict[str, Any] = {}
    if cluster.address == LOCAL:
        own = {"num_cpus": max(cores(), cluster.workers[1] + 1)}
    try:
        ray.init(address=cluster.address, logging_level="warning", **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"Cannot reach a Ray cluster at {cluster.address}: {str(error).splitlines()[0]} "
            "Start one with `ray start --head`, and give its address: --address HOST:6379."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def require_shared_folder(ray: Any, folder: Path) -> None:
    """Refuse a folder that is not visible on every node of the cluster."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = folder / f".probe-{uuid.uuid4().hex[:8]}"
    probe.touch()
    try:
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        looks = ray.remote(num_cpus=0)(_is_visible)
        asked = [
            looks.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                str(probe)
            )
            for node in nodes
        ]
        blind = [node["NodeName"] for node, sees in zip(nodes, ray.get(asked), strict=True) if not sees]
    finally:
        probe.unlink()
    if blind:
        raise CheckpointError(
            f"{folder} is not visible on {len(blind)} of the cluster's {len(nodes)} nodes ({', '.join(blind[:3])}), so "
            "their workers cannot read checkpoints. Set run=… to a folder on storage that all nodes share, or to "
            "run=s3://BUCKET/NAME."
        )


def _is_visible(path: str) -> bool:
    deadline = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < deadline:
        if Path(path).exists():
            return True
        time.sleep(0.2)
    return False


def map_on_ray(
    items: Sequence[str], worker: type, arguments: Sequence[object], cluster: Cluster, batch: int = 8
) -> Iterator[Any]:
    """Apply `worker(*arguments)` to batches of items, `{"item": …}` to rows; yields rows as they are done."""
    with connect_cluster(cluster) as ray:
        data = importlib.import_module("ray.data")
        data.DataContext.get_current().enable_progress_bars = False
        # Small batches: little is repeated when a worker dies, and no worker waits for a long one.
        rows = data.from_items([{"item": item} for item in items], override_num_blocks=max(1, len(items) // batch))
        made = rows.map_batches(
            worker,
            fn_constructor_args=tuple(arguments),
            batch_size=batch,
            num_gpus=1 if uses_gpu(ray, cluster.device) else None,
            compute=data.ActorPoolStrategy(min_size=cluster.workers[0], max_size=cluster.workers[1]),
        )
        yield from made.iter_rows()


def uses_gpu(ray: Any, device: str) -> bool:
    """Whether workers get a GPU each: the cluster has some, and nobody asked for the CPU."""
    return device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise ConfigError('Ray is not installed. Run: pip install "attune-speech[ray]"') from error
