"""Signals against their references: scale-invariant signal-to-distortion ratio, and the best order of sources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from attune.metrics import Metric

SI_SDR = Metric("si_sdr", "dB", True, "Scale-invariant signal-to-distortion ratio, mean over utterances.")
SI_SDR_IMPROVEMENT = Metric("si_sdri", "dB", True, "SI-SDR of the estimate minus SI-SDR of the input, mean over all.")
STOI = Metric("stoi", "%", True, "Short-time objective intelligibility, mean over utterances.")
PESQ = Metric("pesq", "", True, "Wide-band PESQ (MOS-LQO), mean over utterances.")

Signal = NDArray[np.float64]
SMALLEST = 1e-12


def si_sdr(reference: Signal, estimate: Signal) -> float:
    """In dB, of signals of equal length with their means removed ("SDR: half-baked or well done?", 1811.02508)."""
    size = min(len(reference), len(estimate))
    reference, estimate = (each[:size] - each[:size].mean() for each in (reference, estimate))
    projection = float(estimate @ reference) / max(_energy(reference), SMALLEST) * reference
    return 10 * math.log10(max(_energy(projection), SMALLEST) / max(_energy(estimate - projection), SMALLEST))


def _energy(signal: Signal) -> float:
    return float(signal @ signal)


def best_order(references: Sequence[Signal], estimates: Sequence[Signal]) -> tuple[float, ...]:
    """The SI-SDR of each reference under the order of the estimates in which their mean is highest."""
    table = [[si_sdr(reference, estimate) for estimate in estimates] for reference in references]
    orders = permutations(range(len(estimates)), len(references))
    found = (tuple(table[row][column] for row, column in enumerate(order)) for order in orders)
    return max(found, key=sum)
