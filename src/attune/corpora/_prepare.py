"""Write the manifest of a split: every row checked and measured, by several processes, in the corpus's own order.

A manifest under its name is complete. What an interrupted preparation had measured is in a journal beside it, which
the next one reads instead of the audio.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from attune.corpora._inspect import settle_worker
from attune.corpora._layout import Found, Skipped
from attune.corpora._rows import BadRow, checked, read_row, write_row
from attune.corpora._scan import Unusable, hash_id, look_at
from attune.errors import DataError
from attune.files import completed, write_text
from attune.sources import is_address

CHUNK = 64  # rows a process is given at a time
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Prepared:
    """A split as it was written: its rows and how much audio, and what was left out and why."""

    split: str
    manifest: Path
    rows: int
    seconds: float
    left_out: Mapping[str, int]  # by reason
    examples: tuple[str, ...]
    was_there: bool = False


def prepare_split(split: str, found: Iterable[Found], to: Path, jobs: int) -> Generator[int, None, Prepared]:
    """Write `to/SPLIT.jsonl`, unless it is there; yields how many rows are done."""
    manifest = to / f"{split}.jsonl"
    if manifest.exists():
        _require_account(split, to)
        return replace(_account(split, to), was_there=True)
    journal = to / f".{split}.measured.jsonl"
    left_out: list[Skipped] = []
    seen: set[int] = set()
    rows = seconds = 0.0
    with completed(manifest) as partial_file, partial_file.open("w", encoding="utf-8") as out:
        for item in _measured(found, journal, to, jobs):
            row = _without_repeats(item, seen)
            if isinstance(row, Skipped):
                left_out.append(row)
                continue
            out.write(write_row(row) + "\n")
            rows, seconds = rows + 1, seconds + (row.seconds or 0.0)
            if rows % CHUNK == 0:
                yield int(rows)
        # Before the manifest has its name: a manifest without it would be one without a word about what is missing.
        _write_account(split, to, int(rows), seconds, left_out)
    journal.unlink(missing_ok=True)
    yield int(rows)
    return _account(split, to)


def _without_repeats(item: Found, seen: set[int]) -> Found:
    if isinstance(item, Skipped):
        return item
    if (key := hash_id(item.id)) in seen:
        return Skipped(item.id, "an id that came before")
    seen.add(key)
    return item


def _measured(found: Iterable[Found], journal: Path, to: Path, jobs: int) -> Iterator[Found]:
    """Each row with its seconds, or why it cannot be used; first what the journal knows."""
    items = iter(found)
    done = 0
    for known, item in zip(_read_journal(journal), items, strict=False):
        if known["key"] != _key(item):  # the corpus is another one now
            items = _chained([item], items)
            break
        done += 1
        yield _settled(item, known["result"], to)
    _shorten(journal, done)
    with journal.open("a", encoding="utf-8") as file:
        for chunk, results in _in_processes(items, partial(_look_at_all, to), jobs):
            for item, result in zip(chunk, results, strict=True):
                file.write(json.dumps({"key": _key(item), "result": result}) + "\n")
                yield _settled(item, result, to)
            file.flush()


def _chained(first: Sequence[Found], rest: Iterator[Found]) -> Iterator[Found]:
    yield from first
    yield from rest


def _read_journal(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:  # cut off when it was being written
                return


def _shorten(path: Path, lines: int) -> None:
    """Keep so many lines of the journal: what follows is cut off, or about another corpus."""
    if path.exists():
        with path.open(encoding="utf-8") as file:
            kept = list(islice(file, lines))
        write_text(path, "".join(kept))


def _key(item: Found) -> str:
    if isinstance(item, Skipped):
        return f"skipped {item.which!a}"
    return f"{item.id!a} {item.audio!a} {item.first_byte} {item.row} {item.start} {item.seconds}"


def _settled(item: Found, result: float | str, to: Path) -> Found:
    """The row with the seconds that were found, its audio relative to the manifest where it lies below it."""
    if isinstance(item, Skipped):
        return item
    if isinstance(result, str):
        return Skipped(item.id, result)
    audio = item.audio
    if audio and not is_address(audio) and Path(audio).is_relative_to(to.absolute()):
        audio = str(Path(audio).relative_to(to.absolute()))
    return replace(item, audio=audio, seconds=round(result, 6) if item.audio else None)


def _look_at_all(to: Path, items: Sequence[Found]) -> list[float | str]:
    return [_look_at(item, to) for item in items]


def _look_at(item: Found, to: Path) -> float | str:
    """The seconds of a row, or a reason that is the same for all rows with the same trouble."""
    if isinstance(item, Skipped):
        return item.reason
    try:
        read_row(write_row(item).encode())  # as it will be read
        checked(item)
    except BadRow as bad:
        return str(bad)
    except UnicodeEncodeError:
        return "a name or text that is not UTF-8"
    found = look_at(item, to)
    if not isinstance(found, Unusable):
        return found
    if found.audio.size is None and not is_address(found.audio.path):
        return "missing audio file"
    return found.reason.replace(found.audio.path, "audio file")


def _in_processes(
    items: Iterator[Found], work: Callable[[Sequence[Found]], list[float | str]], jobs: int
) -> Iterator[tuple[Sequence[Found], list[float | str]]]:
    chunks = iter(lambda: list(islice(items, CHUNK)), [])
    if jobs < 2:
        yield from ((chunk, work(chunk)) for chunk in chunks)
        return
    waiting: deque[tuple[Sequence[Found], Future[list[float | str]]]] = deque()
    with ProcessPoolExecutor(jobs, initializer=settle_worker) as pool:
        try:
            while True:
                while len(waiting) < 2 * jobs and (chunk := next(chunks, None)):
                    waiting.append((chunk, pool.submit(work, chunk)))
                if not waiting:
                    return
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _account_path(split: str, to: Path) -> Path:
    return to / f"{split}.prepared.json"


def _require_account(split: str, to: Path) -> None:
    """The account is written before the manifest, so one without it is somebody else's."""
    if not _account_path(split, to).exists():
        raise DataError(
            f"{to / f'{split}.jsonl'} is there, and was not made by `attune prepare`. Nothing was overwritten. "
            "Give another --to, or move the file away."
        )


def _write_account(split: str, to: Path, rows: int, seconds: float, left_out: Sequence[Skipped]) -> None:
    account = {
        "rows": rows,
        "seconds": round(seconds, 3),
        "left_out": dict(Counter(each.reason for each in left_out).most_common()),
        "which": [f"{each.which}: {each.reason}".encode(errors="replace").decode() for each in left_out],
    }
    write_text(_account_path(split, to), json.dumps(account, indent=1, ensure_ascii=False) + "\n")


def _account(split: str, to: Path) -> Prepared:
    account = json.loads(_account_path(split, to).read_text(encoding="utf-8"))
    examples = tuple(account["which"][:SHOWN])
    return Prepared(split, to / f"{split}.jsonl", account["rows"], account["seconds"], account["left_out"], examples)
