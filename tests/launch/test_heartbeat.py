"""What is reported about a rank that the others wait for: unresponsive, or alive and late."""

import os
import re
import subprocess
import threading
import time
from datetime import timedelta

import pytest
import torch
from torch.distributed import TCPStore

from attune.errors import RankLost
from attune.launch.heartbeat import RankMonitor, RankProcess
from attune.world import World

pytestmark = pytest.mark.recipe

TIMEOUT = 1.6


@pytest.fixture
def store():
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))


def wait_for_the_other(store, monkeypatch, *, beats_for: float) -> list[str]:
    """What the first of two ranks reports while it waits; the other sends heartbeats for some seconds, no more."""
    reported: list[str] = []
    found, over = threading.Event(), threading.Event()
    monkeypatch.setattr(os, "_exit", lambda _: over.wait(5))

    def on_loss(reason: str, is_reporter: bool) -> None:
        reported.extend([reason] if is_reporter else [])
        found.set()

    processes = [RankProcess(os.getpid(), "here", "this machine"), RankProcess(1, "there", "another machine")]
    monitor = RankMonitor(store, World(0, 2, torch.device("cpu")), processes, TIMEOUT, on_loss)
    began = time.monotonic()
    with monitor.waiting():
        for beat in range(100):
            if time.monotonic() - began < beats_for:
                store.set("beat/1", f"{beat} 0")
            if found.wait(0.05):
                break
    monitor.close()
    over.set()
    return reported


def test_a_rank_that_stops_its_heartbeat_while_the_others_wait_is_unresponsive(store, monkeypatch):
    [reason] = wait_for_the_other(store, monkeypatch, beats_for=TIMEOUT / 4)
    assert reason.startswith("Rank 1 (process 1 on there) sent no heartbeat for 2 s")


def test_a_rank_that_is_alive_and_misses_a_collective_is_late(store, monkeypatch):
    [reason] = wait_for_the_other(store, monkeypatch, beats_for=60)
    assert reason.startswith("Rank 1 (process 1 on there) kept the others waiting for 2 s")


def lost_among(store, *, reason: str | None, is_near: bool) -> RankLost:
    """What the first of two ranks learns about the other, which sent a heartbeat and no more, once a sum has failed."""
    space = "this machine" if is_near else "another machine"
    gone = subprocess.Popen(["true"])
    gone.wait()
    processes = [RankProcess(os.getpid(), "here", "this machine"), RankProcess(gone.pid, "there", space)]
    store.set("beat/1", "1 0")
    monitor = RankMonitor(store, World(0, 2, torch.device("cpu")), processes, TIMEOUT, lambda *_: None)
    if reason:
        store.set("reason/1", reason)
        store.set("left/1", "")
        time.sleep(TIMEOUT / 4)  # until it was read
    try:
        return monitor.explain_loss()
    finally:
        monitor.close()


@pytest.mark.parametrize("is_near", [True, False])
def test_a_rank_that_was_killed_is_named_with_its_machine(store, is_near):
    lost = lost_among(store, reason=None, is_near=is_near)
    assert re.match(r"Rank 1 \(process \d+ on there\) was killed, or its machine is gone\.", str(lost))
    assert lost.is_reporter


@pytest.mark.parametrize("is_near", [True, False])
def test_a_rank_that_failed_is_named_with_its_reason_unless_it_printed_that_here(store, is_near):
    lost = lost_among(store, reason="disk full", is_near=is_near)
    assert str(lost).endswith("on there) has exited: disk full")
    assert lost.is_reporter is not is_near


def test_who_is_lost_is_found_while_others_sign_off(store):
    """One thread forgets ranks that have left while another looks through all of them."""
    ranks = 300
    processes = [RankProcess(os.getpid(), "here", "this machine")] * ranks
    monitor = RankMonitor(store, World(0, ranks, torch.device("cpu")), processes, TIMEOUT, lambda *_: None)
    for rank in range(1, ranks):
        store.set(f"left/{rank}", "")
    try:
        assert "another rank" in str(monitor.explain_loss()).lower()
    finally:
        monitor.close()
