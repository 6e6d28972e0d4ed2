"""What is said of a rank that the others wait for: silent, or alive and late."""

import os
import threading
import time
from datetime import timedelta

import pytest
import torch
from torch.distributed import TCPStore

from attune.launch.watch import RankPlace, Watch
from attune.world import World

TIMEOUT = 1.6


@pytest.fixture
def store():
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))


def wait_for_the_other(store, monkeypatch, *, beats_for: float) -> list[str]:
    """What the first of two ranks says while it waits; the other beats for some seconds and never comes."""
    said: list[str] = []
    found, over = threading.Event(), threading.Event()
    monkeypatch.setattr(os, "_exit", lambda _: over.wait(5))

    def tell(reason: str, speaks: bool) -> None:
        said.extend([reason] if speaks else [])
        found.set()

    places = [RankPlace(os.getpid(), "here", "this machine"), RankPlace(1, "there", "another machine")]
    watch = Watch(store, World(0, 2, torch.device("cpu")), places, TIMEOUT, tell)
    began = time.monotonic()
    with watch.meeting():
        for beat in range(100):
            if time.monotonic() - began < beats_for:
                store.set("beat/1", f"{beat} 0")
            if found.wait(0.05):
                break
    watch.close()
    over.set()
    return said


def test_a_rank_that_fell_silent_after_the_others_began_to_wait_is_called_silent(store, monkeypatch):
    [said] = wait_for_the_other(store, monkeypatch, beats_for=TIMEOUT / 4)
    assert said.startswith("Rank 1 (process 1 on there) did not answer for 2 s")


def test_a_rank_that_is_heard_and_does_not_come_is_called_late(store, monkeypatch):
    [said] = wait_for_the_other(store, monkeypatch, beats_for=60)
    assert said.startswith("Rank 1 (process 1 on there) kept the others waiting for 2 s")
