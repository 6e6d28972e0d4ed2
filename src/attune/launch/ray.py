"""Ray: the same work on the machines of a cluster. Ray starts and restarts the processes; the rest is ours.

A run resumes from its own checkpoints, never from Ray's. So the run directory must be visible to every node, which is
checked before anything starts. A worker writes why it failed (an error, a preemption) to the run directory too, as Ray
itself only reports that there was an error.
"""

import importlib
import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from attune.errors import AttuneError, CheckpointError, ConfigError, RankLost, ReaderLost
from attune.files import explain_write_errors, write_text
from attune.launch.group import Outcome
from attune.launch.heartbeat import monitored
from attune.launch.ranks import GRACE_SECONDS
from attune.launch.stopping import INTERRUPTED, STOP_SIGNALS
from attune.processes import RUN_ID_VARIABLE, cores
from attune.world import World

LOCAL = "local"  # an address: a cluster on this machine only, which ends with this process
SEEN_SECONDS = 10.0  # a network file system may show a new file late
FAILURE, STOP, RESULT = ".failure.json", ".stop", ".result.json"  # in the run directory


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

    `report` sends metrics to Ray, and is called equally often on every rank.
    """

    run: Path
    do: Callable[[World, Callable[[], bool], Callable[[Mapping[str, float]], None]], None]
    on_loss: Callable[[str, bool], None]


def train_on_ray(work: Work, cluster: Cluster, restarts: int) -> Outcome:
    """Run `work` on the cluster's workers; a group that loses one is restarted, at most `restarts` times."""
    with explain_write_errors(work.run, "Set run=… to a writable folder that all nodes share.", CheckpointError):
        work.run.mkdir(parents=True, exist_ok=True)
        for name in (FAILURE, STOP, RESULT):
            (work.run / name).unlink(missing_ok=True)
    with connect_cluster(cluster) as ray, _stop_file_on_signal(work.run / STOP):
        require_shared_folder(ray, work.run)
        failure = _fit(ray, work, cluster, restarts)
        word = work.run / FAILURE
        if word.exists():
            return Outcome(**json.loads(word.read_text()))
        return Outcome(1, failure) if failure else Outcome(0)


def _fit(ray: Any, work: Work, cluster: Cluster, restarts: int) -> str:
    """The error that Ray reports, or an empty string."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    least, most = cluster.workers
    scaling = ScalingConfig(
        num_workers=most if least == most else (least, most),  # type: ignore[arg-type]
        use_gpu=uses_gpu(ray, cluster.device),
    )
    storage = work.run / ".ray"
    trainer = TorchTrainer(
        _worker,
        train_loop_config={"work": work, "timeout": cluster.timeout},
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

    work: Work = config["work"]
    if (work.run / FAILURE).exists():
        return  # a worker of the previous group failed for good, which a restart does not change
    world = World(dist.get_rank(), dist.get_world_size(), get_device())
    os.environ.update(RANK=str(world.rank), WORLD_SIZE=str(world.size))
    with monitored(world, config["timeout"], work.on_loss) as seen:
        try:
            work.do(seen, _stop_file(work.run / STOP), lambda figures: report(dict(figures)))
        except (RankLost, ReaderLost):
            raise  # worth a restart
        except AttuneError as error:
            word = {"code": error.exit_code, "reason": str(error), "error_kind": type(error).__name__}
            write_text(work.run / FAILURE, json.dumps(word))
            if error.exit_code != 75:  # all ranks stop together when preempted, but an error may be one rank's own
                raise


def _stop_file(path: Path) -> Callable[[], bool]:
    """Whether the file exists, checked at most once a second: it may be on a network file system."""
    asked = [0.0, 0.0]  # when, and the answer

    def stop_requested() -> bool:
        if time.monotonic() - asked[0] > 1.0:
            asked[:] = time.monotonic(), float(path.exists())
        return bool(asked[1])

    return stop_requested


@contextmanager
def _stop_file_on_signal(path: Path) -> Iterator[None]:
    """A stop signal to this process creates a file that every worker checks for; a second Ctrl-C ends it at once."""

    def stop(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and path.exists():
            os._exit(INTERRUPTED)  # Ray ends the workers of a driver that is gone
        path.touch()

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
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
            "their workers cannot read checkpoints. Set run=… to a folder on storage that all nodes share."
        )


def _is_visible(path: str) -> bool:
    deadline = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < deadline:
        if Path(path).exists():
            return True
        time.sleep(0.2)
    return False


def map_on_ray(items: Sequence[str], worker: type, arguments: Sequence[object], cluster: Cluster) -> Iterator[Any]:
    """Apply `worker(*arguments)` to batches of items, `{"item": …}` to rows; yields rows as they are done."""
    with connect_cluster(cluster) as ray:
        data = importlib.import_module("ray.data")
        data.DataContext.get_current().enable_progress_bars = False
        # Small batches: little is repeated when a worker dies, and no worker waits for a long one.
        rows = data.from_items([{"item": item} for item in items], override_num_blocks=max(1, len(items) // 8))
        made = rows.map_batches(
            worker,
            fn_constructor_args=tuple(arguments),
            batch_size=8,
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
