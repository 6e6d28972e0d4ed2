"""Stop signals that the launcher passes on to its ranks."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from attune.launch.group import forward_stop_signals
from attune.processes import RUN_ID_VARIABLE


def test_a_rank_that_ends_by_itself_does_not_keep_the_signal_from_the_others():
    with forward_stop_signals() as stop:
        environment = {**os.environ, RUN_ID_VARIABLE: stop.run}
        os.kill(os.getpid(), signal.SIGTERM)
        until = time.monotonic() + 2

        def end_again_and_again(_: int) -> None:
            while time.monotonic() < until:  # sometimes between the look for ranks and the signal to this one
                subprocess.run(["sleep", "0.01"], env=environment, check=False)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(end_again_and_again, range(8)))
        with subprocess.Popen(["sleep", "5"], env=environment) as rank:
            assert rank.wait() == -signal.SIGTERM
