"""The points of a sweep on this machine or on a Ray cluster: each is one process with one device.

On a cluster each point is a trial of Ray Tune, whose dashboard shows it; points resume from checkpoints of their own,
which every node sees, and are ranked here.
"""

import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from attune.launch.ray import Cluster, connect_cluster, require_shared_folder, uses_gpu
from attune.site import Site
from attune.studies.sweep import PointResult, SweepPoint, finished_result, run_point

TRIALS = "ray-tune"  # the folder of what Tune writes, beside the runs
LOST_NODES = 3  # that a point may outlive


def run_here(
    points: Sequence[SweepPoint], site: Site, devices: int, stop_requested: Callable[[], bool]
) -> Iterator[PointResult]:
    """Run the points in this process, or `devices` of them at a time; yields each when it is done."""
    if devices == 1:
        yield from (run_point(point, site, stop_requested) for point in points)
        return
    context = multiprocessing.get_context("spawn")
    numbers: Queue[int] = context.Queue()
    for number in range(devices):
        numbers.put(number)
    with ProcessPoolExecutor(devices, context, _take_device, (numbers, devices)) as pool:
        yield from (done.result() for done in as_completed([pool.submit(run_point, point, site) for point in points]))


def _take_device(numbers: "Queue[int]", devices: int) -> None:
    """Give this process a device of its own, before anything has asked for one, and its share of the cores."""
    os.environ["CUDA_VISIBLE_DEVICES"] = visible_device(numbers.get(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // devices)))


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
