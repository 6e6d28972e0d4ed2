"""Cut one set into train, dev and test so that no speaker, or at least no recording, is in two of them."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from attune.corpora._layout import RowOrSkipped, Skipped
from attune.errors import DataError

REST = "train"
SplitBy = Literal["speaker", "recording"]
Share = Annotated[float, Field(ge=0, lt=1)]


def cut_by_ratio(
    read: Callable[[], Iterable[RowOrSkipped]], shares: Mapping[str, float], split_by: SplitBy | None
) -> dict[str, Iterator[RowOrSkipped]]:
    """The rows of `read`, which is called for each split; `shares` are those of dev and test, train gets the rest.

    Speakers are kept together, and recordings where rows have no speaker. The same rows are cut the same each time.
    """
    counts: Counter[str] = Counter()
    speakers = set[str]()
    for row in read():
        if not isinstance(row, Skipped):
            counts[_group(row, split_by)] += 1
            speakers |= {row.speaker} if row.speaker else set()
    if split_by == "speaker" and not speakers:
        raise DataError("No row has a speaker to split by. Add speaker=COLUMN, or split_by=recording.")
    owners = assign_groups(counts, shares)
    return {
        name: _rows_of(read, name, partial(_group, split_by=split_by), owners)
        for name in (REST, *(name for name, share in shares.items() if share))
    }


def assign_groups(counts: Mapping[str, int], shares: Mapping[str, float]) -> dict[str, str]:
    """The split of each group: in an order by hash, each split takes groups until it is closest to its share.

    Where all of them are too large for it, such as a speaker who has most of the rows, it takes the smallest.
    """
    wanted = {name: share * sum(counts.values()) for name, share in shares.items() if share}
    if len(counts) <= len(wanted):
        raise DataError(
            f"{len(counts)} speakers or recordings cannot be cut into {len(wanted) + 1} splits without one of them in "
            "two splits. Add split_by=recording to keep only recordings apart, or leave out dev= or test=."
        )
    left = sorted(counts, key=lambda group: hashlib.blake2b(group.encode(errors="surrogateescape")).digest())
    owners: dict[str, str] = {}
    for number, (name, share) in enumerate(wanted.items(), 1):
        total, others = 0, list[str]()
        for place, group in enumerate(left):
            # One at least for each split to come, and for train.
            keeps_enough = len(others) + len(left) - place > len(wanted) - number + 1
            if keeps_enough and abs(total + counts[group] - share) < abs(total - share):
                owners[group], total = name, total + counts[group]
            else:
                others.append(group)
        left = others
        if not total:
            left.remove(smallest := min(left, key=counts.__getitem__))
            owners[smallest] = name
    return {**dict.fromkeys(left, REST), **owners}


def _group(row: RowOrSkipped, split_by: SplitBy | None) -> str:
    if isinstance(row, Skipped):
        return ""
    own = row.speaker if split_by != "recording" else None
    return f"speaker {own}" if own else f"recording {row.audio}"


def _rows_of(
    read: Callable[[], Iterable[RowOrSkipped]],
    name: str,
    group: Callable[[RowOrSkipped], str],
    owners: Mapping[str, str],
) -> Iterator[RowOrSkipped]:
    """The rows of one split; what is skipped is reported with the rest."""
    return (row for row in read() if (REST if isinstance(row, Skipped) else owners[group(row)]) == name)
