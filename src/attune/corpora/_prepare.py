"""Write the manifest of a split: every row validated and measured, by several processes, in the order of the corpus.

A manifest under its name is complete. What an interrupted preparation had measured is in a journal beside it, which
the next one reads instead of the audio.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from attune.corpora._changes import Fingerprint, Reading, describe_changes, file_stamp
from attune.corpora._inspect import init_worker
from attune.corpora._layout import RowOrSkipped, Skipped
from attune.corpora._rows import BadRow, read_row, validate_row, write_row
from attune.corpora._scan import BadAudio, hash_id, probe_audio, resolve_audio
from attune.errors import DataError, ReaderLost
from attune.files import completed, write_text
from attune.processes import fork_context
from attune.sources import is_address

CHUNK = 64  # rows per task of a process
SHOWN, DESCRIBED = 10, 3  # entries that were skipped: for programs, and for people
MISSING = "missing audio file"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A split as it was written: rows, seconds of audio, and how many entries were skipped by reason."""

    split: str
    manifest: Path
    rows: int
    seconds: float
    left_out: Mapping[str, int]  # by reason
    examples: tuple[str, ...]
    was_there: bool = False

    def describe_skipped(self) -> list[str]:
        """A line for each reason and for some of the entries; none if nothing was skipped."""
        reasons = [f"skipped {count:,}: {reason}" for reason, count in self.left_out.items()]
        return [*reasons, *(f"  {example}" for example in self.examples[:DESCRIBED])]


@dataclass(frozen=True, slots=True)
class Totals:
    """What a manifest came to, and what it was written from."""

    rows: int
    seconds: float
    read: Fingerprint


def prepare_split(
    split: str, found: Iterable[RowOrSkipped], to: Path, jobs: int, replaces: bool = False
) -> Generator[int, None, Prepared]:
    """Write `to/SPLIT.jsonl`, unless it exists and is not to be replaced; yields the number of rows done."""
    manifest = to / f"{split}.jsonl"
    reading = Reading(found, to, keeps_rows=manifest.exists())
    if manifest.exists():
        _require_summary(split, to)
        there = None if replaces else _read_summary(split, to)
        if there and there.rows:
            _require_unchanged(reading, there.read, split, to)
            return replace(_prepared(split, to), was_there=True)
    journal = to / f".{split}.measured.jsonl"
    left_out: list[Skipped] = []
    seen: set[int] = set()
    rows = seconds = 0.0
    with completed(manifest) as partial_file, partial_file.open("w", encoding="utf-8") as out:
        for item in _measured(reading, journal, to, jobs):
            row = _skip_duplicates(item, seen)
            if isinstance(row, Skipped):
                left_out.append(row)
                continue
            out.write(write_row(row) + "\n")
            rows, seconds = rows + 1, seconds + (row.seconds or 0.0)
            if rows % CHUNK == 0:
                yield int(rows)
        # Before the manifest has its name: every manifest has a summary of what was skipped.
        _write_summary(split, to, Totals(int(rows), seconds, reading.fingerprint), left_out)
    journal.unlink(missing_ok=True)
    yield int(rows)
    return _prepared(split, to)


def remove_splits(to: Path, kept: Iterable[str]) -> None:
    """Remove the manifests that an earlier preparation wrote there, but for those of the splits `kept`."""
    for summary in to.glob("*.prepared.json"):
        split = summary.name.removesuffix(".prepared.json")
        if split not in kept:
            (to / f"{split}.jsonl").unlink(missing_ok=True)
            summary.unlink()


def _require_unchanged(reading: Reading, before: Fingerprint | None, split: str, to: Path) -> None:
    if before is None:  # of an earlier version, which did not note it
        return
    for _ in reading:
        pass
    if reading.fingerprint != before:
        changes = describe_changes(reading, before.entries, to / f"{split}.jsonl")
        raise DataError(
            f"{split}: the source has changed since {to / f'{split}.jsonl'} was written ({changes}). "
            f"`attune prepare` writes it again with --force, or elsewhere with another --to; or remove {to}."
        )


def _skip_duplicates(item: RowOrSkipped, seen: set[int]) -> RowOrSkipped:
    if isinstance(item, Skipped):
        return item
    if (key := hash_id(item.id)) in seen:
        return Skipped(item.id, "duplicate id")
    seen.add(key)
    return item


def _measured(found: Iterable[RowOrSkipped], journal: Path, to: Path, jobs: int) -> Iterator[RowOrSkipped]:
    """Each row with its seconds, or why it is skipped; first those in the journal."""
    items = iter(found)
    done = 0
    for known, item in zip(_read_journal(journal), items, strict=False):
        if known.key != _key(item, to):  # the corpus has changed
            items = _chained([item], items)
            break
        done += 1
        yield _finish(item, known.result, to)
    _truncate_journal(journal, done)
    with journal.open("a", encoding="utf-8") as file:
        for chunk, results in _in_processes(items, partial(_check_items, to), jobs):
            for item, result in zip(chunk, results, strict=True):
                file.write(json.dumps({"key": _key(item, to), "result": result}) + "\n")
                yield _finish(item, result, to)
            file.flush()


def _chained(first: Sequence[RowOrSkipped], rest: Iterator[RowOrSkipped]) -> Iterator[RowOrSkipped]:
    yield from first
    yield from rest


@dataclass(frozen=True, slots=True)
class _Measured:
    """A line of the journal: what is known of an entry, its seconds or why it is skipped."""

    key: str
    result: float | str


def _read_journal(path: Path) -> Iterator[_Measured]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                yield msgspec.json.decode(line, type=_Measured)
            except ValueError:  # truncated while it was written, or damaged
                return


def _truncate_journal(path: Path, lines: int) -> None:
    """Keep the first `lines` lines of the journal: the rest is truncated, or of a changed corpus."""
    if path.exists():
        with path.open("rb") as file:
            kept = b"".join(islice(file, lines))
        write_text(path, kept.decode())


def _key(item: RowOrSkipped, to: Path) -> str:
    """What the result of an entry depends on; a recording that was mended meanwhile is measured again."""
    if isinstance(item, Skipped):
        return f"skipped {item.which!a}"
    stamp = file_stamp(Path(to, item.audio)) if item.audio and not is_address(item.audio) else ""
    return f"{item.id!a} {item.audio!a} {item.first_byte} {item.row} {item.start} {item.seconds} {stamp}"


def _finish(item: RowOrSkipped, result: float | str, to: Path) -> RowOrSkipped:
    """The row with its measured seconds, and its audio relative to the manifest if it is below its folder."""
    if isinstance(item, Skipped):
        return item
    if isinstance(result, str):
        tried = f" (tried {resolve_audio(to, item.audio)})" if item.audio and result == MISSING else ""
        return Skipped(f"{item.id}{tried}", result)
    audio = item.audio
    if audio and not is_address(audio) and Path(audio).is_relative_to(to.absolute()):
        audio = str(Path(audio).relative_to(to.absolute()))
    return replace(item, audio=audio, seconds=round(result, 6) if item.audio else None)


def _check_items(to: Path, items: Sequence[RowOrSkipped]) -> list[float | str]:
    return [_check_item(item, to) for item in items]


def _check_item(item: RowOrSkipped, to: Path) -> float | str:
    """The seconds of a row, or a reason that is equal for all rows with the same problem."""
    if isinstance(item, Skipped):
        return item.reason
    try:
        read_row(write_row(item).encode())  # as it will be read
        validate_row(item)
    except BadRow as bad:
        return str(bad)
    except UnicodeEncodeError:
        return "id or text is not UTF-8"
    found = probe_audio(item, to)
    if not isinstance(found, BadAudio):
        return found
    if found.audio.size is None and not is_address(found.audio.path):
        return MISSING
    return found.reason.replace(f"audio file {found.audio.path}", "audio file").replace(found.audio.path, "audio file")


def _in_processes(
    items: Iterator[RowOrSkipped], work: Callable[[Sequence[RowOrSkipped]], list[float | str]], jobs: int
) -> Iterator[tuple[Sequence[RowOrSkipped], list[float | str]]]:
    chunks = iter(lambda: list(islice(items, CHUNK)), [])
    if jobs < 2:
        yield from ((chunk, work(chunk)) for chunk in chunks)
        return
    waiting: deque[tuple[Sequence[RowOrSkipped], Future[list[float | str]]]] = deque()
    with ProcessPoolExecutor(jobs, fork_context(), initializer=init_worker) as pool:
        try:
            while True:
                while len(waiting) < 2 * jobs and (chunk := next(chunks, None)):
                    waiting.append((chunk, pool.submit(work, chunk)))
                if not waiting:
                    return
                done, future = waiting.popleft()
                yield done, future.result()
        except BrokenProcessPool as error:
            raise ReaderLost(
                "A process that measures recordings was killed, perhaps out of memory. Run the same command to go on; "
                "if it happens again, lower --jobs."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _summary_path(split: str, to: Path) -> Path:
    return to / f"{split}.prepared.json"


def _require_summary(split: str, to: Path) -> None:
    """The summary is written before the manifest, so a manifest without one is not ours."""
    if not _summary_path(split, to).exists():
        raise DataError(
            f"{to / f'{split}.jsonl'} exists and was not written by `attune prepare`. Nothing was overwritten. "
            "Give another --to, or remove the file."
        )


def _write_summary(split: str, to: Path, totals: Totals, left_out: Sequence[Skipped]) -> None:
    summary = {
        "rows": totals.rows,
        "seconds": round(totals.seconds, 3),
        "read": totals.read.as_json(),
        "left_out": dict(Counter(each.reason for each in left_out).most_common()),
        "which": [f"{each.which}: {each.reason}".encode(errors="replace").decode() for each in left_out],
    }
    write_text(_summary_path(split, to), json.dumps(summary, indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True, slots=True)
class _Summary:
    """What is written beside a manifest."""

    rows: int
    seconds: float
    left_out: dict[str, int]
    which: tuple[str, ...]
    read: Fingerprint | None = None  # absent in those of earlier versions


def _read_summary(split: str, to: Path) -> _Summary:
    path = _summary_path(split, to)
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Summary)
    except ValueError as error:
        raise DataError(f"{path} is damaged. Prepare again with --force, or elsewhere with another --to.") from error


def _prepared(split: str, to: Path) -> Prepared:
    found = _read_summary(split, to)
    return Prepared(split, to / f"{split}.jsonl", found.rows, found.seconds, found.left_out, found.which[:SHOWN])
