"""The points of a sweep on this machine or on a Ray cluster: each is one process with one device.

On a cluster each point is a trial of Ray Tune, whose dashboard shows it; points resume from checkpoints of their own,
which every node sees, and are ranked here.
"""

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from attune.errors import Preempted
from attune.launch.ray import Cluster, connect_cluster, require_shared_folder, uses_gpu
from attune.launch.stopping import STOP_SIGNALS
from attune.processes import cores, die_with_parent
from attune.site import Site
from attune.studies.sweep import PointResult, SweepPoint, finished_result, run_point

CONTEXT = multiprocessing.get_context("spawn")
LOOK_SECONDS = 0.2  # between two looks whether to stop
TRIALS = "ray-tune"  # the folder of what Tune writes, beside the runs
LOST_NODES = 3  # that a point may outlive


def run_here(
    points: Sequence[SweepPoint], site: Site, devices: int, stop_requested: Callable[[], bool]
) -> Iterator[PointResult]:
    """Run the points in this process, or `devices` of them at a time; yields each when it is done."""
    if devices == 1:
        yield from (run_point(point, site, stop_requested) for point in points)
        return
    stops, free = CONTEXT.Event(), SimpleQueue[int]()
    for number in range(devices):
        free.put(number)
    with ThreadPoolExecutor(devices) as pool:
        try:
            pending = {pool.submit(_run_apart, point, site, free, devices, stops) for point in points}
            while pending:
                done, pending = wait(pending, LOOK_SECONDS, FIRST_COMPLETED)
                yield from (each.result() for each in done)
                if stop_requested():
                    stops.set()
                    pending = {each for each in pending if not each.cancel()}
            if stops.is_set():
                raise Preempted("Stopped. Run the same command to go on with the other points.")
        finally:  # however it ends, nobody trains on
            stops.set()
            pool.shutdown(cancel_futures=True)


def _run_apart(point: SweepPoint, site: Site, free: "SimpleQueue[int]", devices: int, stops: Event) -> PointResult:
    """Run a point in a process of its own, on a free device; one that is killed is not the end of the sweep."""
    number = free.get()
    try:
        receiver, sender = CONTEXT.Pipe(duplex=False)
        arguments = (sender, point, site, number, devices, stops, os.getpid())
        process = CONTEXT.Process(target=_work, args=arguments)
        process.start()
        sender.close()  # so that the end of the process is the end of what there is to receive
        try:
            result: PointResult | BaseException = receiver.recv()
        except EOFError:
            result = PointResult(point, problem="Its process was killed, perhaps out of memory. Run the command again.")
        process.join()
    finally:
        free.put(number)
    if isinstance(result, BaseException):
        raise result
    return result


def _work(
    sender: Connection, point: SweepPoint, site: Site, number: int, devices: int, stops: Event, parent: int
) -> None:
    """Run a point on a device of its own and with a share of the cores, until `stops` is set."""
    die_with_parent(parent)
    for each in STOP_SIGNALS:  # which a terminal sends to the parent too: it decides when to stop
        signal.signal(each, signal.SIG_IGN)
    os.environ["CUDA_VISIBLE_DEVICES"] = visible_device(number, os.environ.get("CUDA_VISIBLE_DEVICES"))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // devices)))
    try:
        sender.send(run_point(point, site, stops.is_set))
    except BaseException as error:
        sender.send(error)


def visible_device(number: int, visible: str | None) -> str:
    """The device of that number among those that this machine shows."""
    shown = [name for name in (visible or "").split(",") if name]
    return shown[number] if number < len(shown) else str(number) if visible is None else ""


def run_on_ray(points: Sequence[SweepPoint], site: Site, cluster: Cluster, folder: Path) -> list[PointResult]:
    """Run each point as a trial of Ray Tune, `cluster.workers` at a time; Tune shows how far they are."""
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # every run has its own log
    with connect_cluster(cluster) as ray:
        require_shared_folder(ray, folder)
        tune = importlib.import_module("ray.tune")
        room = {"cpu": 1, "gpu": int(uses_gpu(ray, cluster.device))}
        tuner = tune.Tuner(
            tune.with_resources(_trial(points, site, Path.cwd()), room),
            param_space={"point": tune.grid_search(list(range(len(points))))},
            tune_config=tune.TuneConfig(
                max_concurrent_trials=cluster.workers[1],
                trial_name_creator=lambda trial: points[trial.config["point"]].run.name,
            ),
            run_config=tune.RunConfig(
                name=TRIALS,
                storage_path=str(folder),
                failure_config=tune.FailureConfig(max_failures=LOST_NODES),
                verbose=1,
            ),
        )
        return [_result(points[trial.config["point"]], trial) for trial in tuner.fit()]


def _trial(points: Sequence[SweepPoint], site: Site, folder: Path) -> Callable[[dict[str, Any]], None]:
    """What a trial does: its point, whose dev scores it reports to Tune."""

    def trial(config: dict[str, Any]) -> None:
        from ray import tune

        if folder.is_dir():
            os.chdir(folder)  # relative paths start at the folder of the command
        result = run_point(points[config["point"]], site)
        scores = result.scores.values if result.scores else {}
        tune.report({"problem": result.problem, **{f"dev.{name}": score.value for name, score in scores.items()}})

    return trial


def _result(point: SweepPoint, trial: Any) -> PointResult:
    """What came of a trial; the scores are those that the run itself has recorded."""
    problem = str(trial.error).strip().splitlines()[-1] if trial.error else trial.metrics["problem"]
    return PointResult(point, problem=problem) if problem else finished_result(point)
