"""Many processes want one file, and the network is at its worst."""

import hashlib
import multiprocessing
import random
import time
from pathlib import Path

import pytest

from attune.sources import Cache, RetryPolicy, locate

from servers.web import Fault, Site, web

pytestmark = pytest.mark.recipe

FORK = multiprocessing.get_context("fork")
MEGABYTE = 1 << 20


def fetch(url: str, folder: Path, start, results) -> None:
    start.wait()
    path = locate(url, Cache(folder, retry=RetryPolicy(timeout=3.0, first_wait=0.05)))
    results.put((str(path), hashlib.sha256(path.read_bytes()).hexdigest()))


def partial_files(cache: Cache, size: int) -> list[str]:
    """What is under a final name and is not all there."""
    found = []
    for room in ("objects", "files"):
        for path in (cache.folder / room).rglob("*"):
            if path.is_file() and path.stat().st_size != size:
                found.append(str(path))
    return found


def test_eight_processes_make_one_download_of_200_mb_through_stalls_truncations_and_503s(tmp_path):
    body = random.Random(0).randbytes(200 * MEGABYTE)
    faults = [Fault(503), Fault(stall_after=60 * MEGABYTE), Fault(503), Fault(end_after=50 * MEGABYTE)]
    site, cache = Site({"/model.safetensors": body}, faults), Cache(tmp_path / "cache")
    with web(site) as url:
        start, results = FORK.Event(), FORK.Queue()
        words = (f"{url}/model.safetensors", cache.folder, start, results)
        processes = [FORK.Process(target=fetch, args=words) for _ in range(8)]
        for process in processes:
            process.start()
        start.set()
        seen: list[str] = []
        looks, began = 0, time.monotonic()
        deadline = began + 120
        while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
            seen += partial_files(cache, len(body))
            looks += 1
            time.sleep(0.005)
        answers = {results.get(timeout=5) for _ in processes}
        for process in processes:
            process.join(timeout=5)
        print(f"{time.monotonic() - began:.1f} s, {looks} looks, {site.sent - len(body)} bytes more than the file has")
    assert seen == []
    assert len(answers) == 1
    assert answers.pop()[1] == hashlib.sha256(body).hexdigest()
    assert site.complete == 1
    # A stalled connection may have a chunk on its way that the client no longer reads.
    assert len(body) <= site.sent <= len(body) + 2 * MEGABYTE
    assert [process.exitcode for process in processes] == [0] * 8
    assert [wanted is None for _, wanted in site.asked] == [True, True, False, False, False]
