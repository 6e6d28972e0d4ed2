"""The queue: clients take turns, batches are of one kind and bounded, and one failure fails one request."""

import asyncio
import threading

import pytest

from attune.serve.engine import FairQueue, QueuedWork
from attune.serve.problems import ApiError
from attune.serve.settings import ServerLimits


def work(kind="greedy", seconds=1.0):
    loop = asyncio.new_event_loop()
    made = QueuedWork(kind, seconds, list, None, loop.create_future(), loop)
    loop.close()
    return made


def test_clients_take_turns():
    queue = FairQueue(ServerLimits(batch_size=2))
    long, short = [work() for _ in range(5)], work()
    for each in long:
        queue.put("long file", each)
    queue.put("short file", short)
    assert queue.take() == [long[0], short]
    assert queue.take() == [long[1], long[2]]


def test_a_batch_is_of_one_kind_and_not_too_long():
    queue = FairQueue(ServerLimits(batch_seconds=10))
    one, other, another, long = work(), work("words"), work(), work(seconds=9.5)
    for client, each in zip("abcd", (one, other, another, long), strict=True):
        queue.put(client, each)
    assert queue.take() == [one, another]
    assert queue.take() == [other]
    assert queue.take() == [long]


def test_who_has_too_much_waiting_is_refused_and_others_are_not():
    queue = FairQueue(ServerLimits(waiting_per_client=2))
    queue.put("eager", work())
    queue.put("eager", work())
    with pytest.raises(ApiError, match="Too many requests") as refused:
        queue.put("eager", work())
    assert refused.value.status == 429
    queue.put("patient", work())
    assert len(queue) == 3


def test_a_closed_queue_is_emptied_and_takes_nothing_more():
    queue = FairQueue(ServerLimits())
    waiting = work()
    queue.put("a", waiting)
    queue.close()
    with pytest.raises(ApiError) as refused:
        queue.put("a", work())
    assert refused.value.status == 503
    assert queue.take() == [waiting] and queue.take() == []


def test_a_thread_that_waits_wakes_up():
    queue, found = FairQueue(ServerLimits()), []
    thread = threading.Thread(target=lambda: found.append(queue.take()))
    thread.start()
    one = work()
    queue.put("a", one)
    thread.join(20)
    assert found == [[one]]
