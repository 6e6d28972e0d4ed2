"""How much work something is, counted rather than timed, so that the answer is the same on a busy machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np


def lines_run(function: Callable[..., Any], *arguments: Any) -> int:
    """How many lines of Python a call runs, those of everything it calls among them."""
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


class CountedArray(np.ndarray):
    """An array that counts the elements of every array made from it."""

    elements = 0

    def __array_finalize__(self, origin: Any) -> None:
        CountedArray.elements += self.size


def elements_made(function: Callable[[np.ndarray], Any], values: np.ndarray) -> int:
    """How many elements all the arrays have that a function makes of its argument: slices, sums, sorted ones."""
    counted = values.view(CountedArray)
    before = CountedArray.elements
    function(counted)
    return CountedArray.elements - before
