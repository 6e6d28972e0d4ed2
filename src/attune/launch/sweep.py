"""The points of a sweep on this machine or on a Ray cluster: each is one process with one device.

Ray starts a task for each point and no more: points resume from their own checkpoints and are ranked here.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.queues import Queue
from pathlib import Path

from attune.launch.ray import Cluster, tasks_on_ray
from attune.site import Site
from attune.stages.sweep import PointResult, SweepPoint, run_point


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


def run_on_ray(points: Sequence[SweepPoint], site: Site, cluster: Cluster, folder: Path) -> Iterator[PointResult]:
    """Run each point as a Ray task, as many at a time as the cluster has room for and --devices allows."""
    arguments = [(point, site, str(Path.cwd())) for point in points]
    yield from tasks_on_ray(_task, arguments, cluster, folder)


def _task(point: SweepPoint, site: Site, folder: str) -> PointResult:
    if Path(folder).is_dir():
        os.chdir(folder)  # relative paths start at the folder of the command
    return run_point(point, site)
