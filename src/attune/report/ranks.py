"""What each rank scored, and all of them together: counts add up, so rates are those of the sums."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from attune.report.tables import aligned

Counts = Mapping[str, int]
COLUMNS: Mapping[str, Callable[[Counts], str]] = {
    "WER": lambda counts: _percent(counts, "num_edits", "num_scored_tokens"),
    "SER": lambda counts: _percent(counts, "num_erroneous_sents", "num_scored_sents"),
    "insertions": lambda counts: f"{counts['insertions']:,}",
    "deletions": lambda counts: f"{counts['deletions']:,}",
    "substitutions": lambda counts: f"{counts['substitutions']:,}",
    "words": lambda counts: f"{counts['num_scored_tokens']:,}",
    "utterances": lambda counts: f"{counts['num_scored_sents']:,}",
    "absent": lambda counts: f"{counts['num_absent_sents']:,}",
}


def ranks_table(ranks: Sequence[Counts]) -> str:
    """A row for each rank, and one for all; tasks without error rates have their own counts."""
    total: Counter[str] = Counter()
    for counts in ranks:
        total.update(counts)
    columns = COLUMNS if "num_edits" in total else {name: _count_of(name) for name in total}
    named = [*((str(rank), counts) for rank, counts in enumerate(ranks)), ("all", total)]
    rows = [[name, *(cell(counts) for cell in columns.values())] for name, counts in named]
    return aligned([["rank", *columns], *rows])


def _count_of(name: str) -> Callable[[Counts], str]:
    return lambda counts: f"{counts.get(name, 0):,}"


def _percent(counts: Counts, part: str, whole: str) -> str:
    return f"{100 * counts[part] / counts[whole]:.2f} %" if counts[whole] else "nothing scored"
