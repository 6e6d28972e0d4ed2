import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def one_thread():
    """Two cores are shared by many ranks in these tests; one thread each is quickest and exact."""
    torch.set_num_threads(1)
