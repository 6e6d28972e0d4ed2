"""Stages read files and write files: train, evaluate, check and the others. Run again, they continue or do nothing.

A stage is a generator of events; whoever runs it draws them.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

Event = TypeVar("Event")
Result = TypeVar("Result")


def drain(stage: Generator[Event, None, Result], watch: Callable[[Event], object] = lambda _: None) -> Result:
    """Run a stage to its end, passing each event to `watch`; returns what the stage returns."""
    while True:
        try:
            watch(next(stage))
        except StopIteration as end:
            result: Result = end.value
            return result
