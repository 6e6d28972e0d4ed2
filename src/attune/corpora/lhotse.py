"""Lhotse cuts: cuts*.jsonl or .jsonl.gz over plain recordings; mixed and transformed cuts and commands are left out."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from attune.corpora._layout import Found, Layout, Place, Skipped
from attune.corpora._manifests import files_of
from attune.corpora._rows import Row
from attune.corpora._scan import audio_path
from attune.errors import DataError

NEAR = 1e-3  # seconds: a cut that is this near to its recording's end goes to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the audio is."""

    root: Annotated[str, Field(description="What relative recordings are relative to.")] = "."


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """A split for each file, by its name."""
    root = Path(options.root).absolute()
    return {name: _rows(path, root) for name, path in files_of(place, ".jsonl", ".jsonl.gz").items()}


def _rows(path: Path, root: Path) -> Iterator[Found]:
    unpack = gzip.open if path.suffix == ".gz" else open
    try:
        with unpack(path, "rt", encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    yield _row(json.loads(line), root)
    except (OSError, EOFError, ValueError) as error:  # a cut-off .gz ends with EOFError
        raise DataError(f"{path} is not whole, or is not JSON lines: {error}") from error


def _row(cut: dict[str, Any], root: Path) -> Found:
    name = str(cut.get("id"))
    if cut.get("type", "MonoCut") != "MonoCut":
        return Skipped(name, f"a {cut['type']}; only MonoCut has one recording")
    recording = cut.get("recording") or {}
    sources = recording.get("sources") or []
    if len(sources) != 1 or sources[0].get("type") not in ("file", "url"):
        kinds = ", ".join(str(source.get("type")) for source in sources) or "nothing"
        return Skipped(name, f"a recording that is not one plain file: {kinds}")
    if names := _transforms(recording):
        reason = f"its recording has transforms ({names}), which are not in its file; write them with save_audios"
        return Skipped(name, reason)
    said = sorted(cut.get("supervisions") or [], key=lambda each: each.get("start", 0.0))
    start, seconds = float(cut.get("start", 0.0)), float(cut.get("duration", 0.0))
    is_whole = start == 0 and abs(float(recording.get("duration", 0.0)) - seconds) < NEAR
    channel = cut.get("channel")
    return Row(
        name,
        audio_path(root, sources[0]["source"]),
        start=None if is_whole else start,
        seconds=seconds,
        text=" ".join(each["text"] for each in said if each.get("text")) or None,
        speaker=said[0].get("speaker") if said else None,
        language=said[0].get("language") if said else None,
        channel=channel if isinstance(channel, int) and len(sources[0].get("channels") or [0]) > 1 else None,
    )


def _transforms(recording: dict[str, Any]) -> str:
    """What Lhotse would do to a recording after reading it; another rate alone leaves every time where it was."""
    names = {str(each.get("name")) for each in recording.get("transforms") or []}
    return ", ".join(sorted(names - {"Resample"}))


CORPUS = Layout(read, Options)
