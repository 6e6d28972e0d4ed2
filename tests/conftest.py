import gc
import os
import sys
from pathlib import Path

# Two cores are shared by many ranks in these tests; one thread each, also in what they start, is quickest and exact.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch

from attune.world import choose_device

sys.path.insert(0, str(Path(__file__).parent))
gc.disable()  # while tests are collected, in each of the processes: it takes a quarter of the time


def pytest_collection_modifyitems(items):
    """Slow ones come first, so that no core waits in the end; those for a CUDA device are skipped without one."""
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("ray", "recipe")])
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_collection_finish():
    gc.enable()
    gc.collect()  # once here, and not in each of the processes that tests fork


@pytest.fixture(autouse=True)
def as_in_a_run(request):
    """A CUDA device computes in tests as it does in a run: float32 means float32."""
    if request.node.get_closest_marker("gpu"):
        choose_device("cuda")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Nothing is fetched into the user's own cache."""
    os.environ["ATTUNE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
