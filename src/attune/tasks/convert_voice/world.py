"""WORLD's spectral envelopes, from the package pyworld."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.machinery import PathFinder
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from attune.errors import ConfigError
from attune.types import SAMPLE_RATE


@cache
def load_world() -> ModuleType:
    """Its compiled module. The package around it imports `pkg_resources`, which setuptools no longer has."""
    package = importlib.util.find_spec("pyworld")
    folders = list(package.submodule_search_locations or ()) if package else []
    compiled = PathFinder.find_spec("pyworld", folders) if folders else None
    if compiled is None or compiled.loader is None:
        raise ConfigError(
            "task.envelope: the package pyworld is not installed. Run `pip install pyworld`, or set it to spectrum."
        )
    module = importlib.util.module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module


def world_envelope(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spectral envelopes (F, K) every 5 ms."""
    world = load_world()
    pitch, times = world.harvest(samples, SAMPLE_RATE)
    envelope: NDArray[np.float64] = world.cheaptrick(samples, pitch, times, SAMPLE_RATE)
    return envelope
