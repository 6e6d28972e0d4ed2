"""Which rows a run uses: bad rows are an error or dropped, and training may skip short and long utterances."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from attune.corpora._manifest import Corpus
from attune.errors import DataError

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that are kept, and the number and seconds of those that are not."""

    rows: npt.NDArray[np.int64]
    seconds: float
    too_short: int
    too_long: int
    left_out_seconds: float


def select(corpus: Corpus, minimum: float, maximum: float) -> Selection:
    """Keep the rows of `minimum` to `maximum` seconds, both included; rows of text alone have no seconds and stay."""
    short = (corpus.seconds < minimum) & (corpus.seconds > 0)
    long = corpus.seconds > maximum
    kept = ~(short | long)
    return Selection(
        rows=np.flatnonzero(kept),
        seconds=float(corpus.seconds[kept].sum()),
        too_short=int(short.sum()),
        too_long=int(long.sum()),
        left_out_seconds=float(corpus.seconds[~kept].sum()),
    )


DROP = "set data.bad_rows=drop to skip them"
REMOVE = "remove them from the manifest"  # where no recipe says what becomes of bad rows


def require_valid_rows(corpus: Corpus, policy: Literal["fail", "drop"], otherwise: str = DROP) -> None:
    """Refuse a corpus with bad rows, unless the policy is to drop them and valid rows remain."""
    if policy == "drop" and len(corpus):
        return
    if not corpus.problems:
        return
    bad, rows = len(corpus.problems), len(corpus.problems) + len(corpus)
    shown = [f"  {problem.where}: {problem.reason}" for problem in corpus.problems[:SHOWN]]
    more = [f"  … and {bad - SHOWN} more"] if bad > SHOWN else []
    advice = f"Fix them, or {otherwise}." if len(corpus) else "No valid row is left."
    title = f"`{corpus.name}` has {bad} bad row{'' if bad == 1 else 's'} out of {rows}:"
    raise DataError("\n".join([title, *shown, *more, advice]))
