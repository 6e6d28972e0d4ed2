"""Lock files: which revision of every source a run used, and the size and SHA-256 of each of its files."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from attune.errors import SourceError
from attune.files import parse_json, write_text
from attune.sources._cache import Entry, entry_from

FORMAT = 1


def write_lock(path: Path, entries: Iterable[Entry]) -> None:
    """Write down what was used, whole or not at all."""
    sources = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.source)]
    write_text(path, json.dumps({"format": FORMAT, "sources": sources}, indent=1) + "\n")


def read_lock(path: Path) -> dict[str, Entry]:
    """What was used, by source."""
    try:
        saved = parse_json(path.read_bytes())
        entries = [entry_from(each) for each in saved["sources"]]
        if saved["format"] != FORMAT:
            raise SourceError(
                f"{path} was written by another version of attune (format {saved['format']}). Use that version."
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path} is not a lock file ({error}). Give a run's sources.lock.json.") from error
    return {entry.source: entry for entry in entries}
