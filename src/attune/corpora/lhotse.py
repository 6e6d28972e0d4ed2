"""Lhotse cuts: cuts*.jsonl or .jsonl.gz of plain recordings; mixed and transformed cuts and commands are skipped."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped
from attune.corpora._manifest_rows import split_files
from attune.corpora._rows import Row
from attune.corpora._scan import resolve_audio
from attune.errors import DataError

NEAR = 1e-3  # seconds: a cut that ends this close to its recording's end extends to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the audio is."""

    root: Annotated[str, Field(description="Folder that relative paths of recordings are relative to.")] = "."


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """A split for each file, by its name."""
    root = Path(options.root).absolute()
    return {name: _rows(path, root) for name, path in split_files(corpus, ".jsonl", ".jsonl.gz").items()}


def _rows(path: Path, root: Path) -> Iterator[RowOrSkipped]:
    unpack = gzip.open if path.suffix == ".gz" else open
    try:
        with unpack(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _row_or_skipped(json.loads(line), root, f"{path.name}:{number}")
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:  # a truncated .gz ends with EOFError
        raise DataError(f"{path} is truncated, or not JSON lines: {error}") from error


def _row_or_skipped(cut: Any, root: Path, where: str) -> RowOrSkipped:
    try:
        return _row(cut, root)
    except (AttributeError, KeyError, TypeError):
        return Skipped(where, "not a cut as Lhotse writes them")


def _row(cut: dict[str, Any], root: Path) -> RowOrSkipped:
    name = str(cut.get("id"))
    if cut.get("type", "MonoCut") != "MonoCut":
        return Skipped(name, f"a {cut['type']}; only MonoCut has one recording")
    recording = cut.get("recording") or {}
    sources = recording.get("sources") or []
    if len(sources) != 1 or sources[0].get("type") not in ("file", "url"):
        kinds = ", ".join(str(source.get("type")) for source in sources) or "nothing"
        return Skipped(name, f"recording is not one plain file: {kinds}")
    if names := _transforms(recording):
        reason = f"recording has transforms ({names}) that are not in its file; apply them with save_audios"
        return Skipped(name, reason)
    supervisions = sorted(cut.get("supervisions") or [], key=lambda each: each.get("start", 0.0))
    start, seconds = float(cut.get("start", 0.0)), float(cut.get("duration", 0.0))
    is_whole = start == 0 and abs(float(recording.get("duration", 0.0)) - seconds) < NEAR
    channel = cut.get("channel")
    return Row(
        name,
        resolve_audio(root, sources[0]["source"]),
        start=None if is_whole else start,
        seconds=seconds,
        text=" ".join(each["text"] for each in supervisions if each.get("text")) or None,
        speaker=supervisions[0].get("speaker") if supervisions else None,
        language=supervisions[0].get("language") if supervisions else None,
        labels=_custom_fields(cut, supervisions),
        channel=channel if isinstance(channel, int) and len(sources[0].get("channels") or [0]) > 1 else None,
    )


def _custom_fields(cut: dict[str, Any], supervisions: list[dict[str, Any]]) -> dict[str, str]:
    """The plain values of `custom`, of the cut and of its first supervision, and that one's gender: labels."""
    first = supervisions[0] if supervisions else {}
    found = {"gender": first.get("gender"), **(cut.get("custom") or {}), **(first.get("custom") or {})}
    plain = {name: value for name, value in found.items() if isinstance(value, str | int | float)}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in plain.items()}


def _transforms(recording: dict[str, Any]) -> str:
    """The transforms that Lhotse applies to a recording on reading; resampling alone changes no timestamps."""
    names = {str(each.get("name")) for each in recording.get("transforms") or []}
    return ", ".join(sorted(names - {"Resample"}))


CORPUS = Layout(read, Options)
