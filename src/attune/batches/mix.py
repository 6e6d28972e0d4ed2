"""Several training sets as one: how often an epoch has each utterance of each set.

A pure function of (sets, seed, epoch). No set is cut: every utterance is in every epoch, and those of a set that is to
weigh more come again. Row `r + k * rows` is the (k + 1)-th turn of row r, which is augmented anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attune.batches.plan import Rows, Seconds
from attune.seeds import derive


@dataclass(frozen=True, slots=True)
class Share:
    """One training set in an epoch: what it has, how often an epoch has it, and how much of an epoch that makes."""

    name: str
    utterances: int
    seconds: float
    times: float
    drawn: int  # utterances of it in an epoch
    part: float  # of an epoch's audio


def turns(seconds: Sequence[float], weights: Sequence[float] | None, temperature: float | None) -> list[float]:
    """How often an epoch has each set; the one that is had least is had once.

    Weights are the shares of an epoch's audio. A temperature of 1 leaves the sets as they are, and the higher it is,
    the more alike their shares become: (share of all audio) ** (1 / temperature).
    """
    total = sum(seconds)
    wanted = weights or [(each / total) ** (1.0 / (temperature or 1.0)) for each in seconds]
    ratios = [weight / each for weight, each in zip(wanted, seconds, strict=True)]
    # A power's last bit differs between processors; the plan must not.
    return [round(ratio / min(ratios), 6) for ratio in ratios]


def draw(rows: Rows, sets: NDArray[np.int64], times: Sequence[float], total: int, seed: int, epoch: int) -> Rows:
    """The rows of an epoch: each row of `rows` as often as its set is had, out of `total` rows in all.

    `sets` has the set of each row. A set that is had 2.5 times is had twice, and another half of it, a new one in each
    epoch.
    """
    parts = []
    for number, often in enumerate(times):
        own = rows[sets[rows] == number]
        whole = int(often)
        parts += [own + turn * total for turn in range(whole)]
        random = np.random.Generator(np.random.Philox(key=derive(seed, "mix", epoch, number)))
        some = random.permutation(len(own))[: round((often - whole) * len(own))]
        parts.append(own[np.sort(some)] + whole * total)
    return np.concatenate(parts)


def shares(
    names: Sequence[str], seconds: Seconds, rows: Rows, sets: NDArray[np.int64], times: Sequence[float]
) -> tuple[Share, ...]:
    """What an epoch has of each set."""
    own = [rows[sets[rows] == number] for number in range(len(names))]
    audio = [float(seconds[each].sum()) for each in own]
    amounts = [amount * often for amount, often in zip(audio, times, strict=True)]
    return tuple(
        Share(name, len(each), amount, often, _drawn(len(each), often), part / max(sum(amounts), 1e-9))
        for name, each, amount, often, part in zip(names, own, audio, times, amounts, strict=True)
    )


def _drawn(utterances: int, often: float) -> int:
    return int(often) * utterances + round((often - int(often)) * utterances)
