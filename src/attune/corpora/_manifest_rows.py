"""Rows from the manifests of other toolkits: JSONL with the fields of `_rows`, one split for each file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from attune.corpora._layout import CorpusPaths, RowOrSkipped, Skipped
from attune.corpora._lines import jsonl_lines
from attune.corpora._rows import BadRow, Row, read_row, validate_row
from attune.corpora._scan import resolve_audio
from attune.errors import DataError

METADATA = "*/metadata.*"  # in each folder of an audio folder of Hugging Face's


def manifest_rows(path: Path, root: Path) -> Iterator[RowOrSkipped]:
    """The rows of a JSONL file, their audio relative to `root`."""
    for line in jsonl_lines(path):
        try:
            row = read_row(line.content)
        except BadRow as bad:
            yield Skipped(f"{path.name}:{line.number}", str(bad))
            continue
        yield replace(row, audio=resolve_audio(root.absolute(), row.audio) if row.audio else None)


def complete_rows(path: Path) -> list[tuple[str, Row]] | None:
    """The lines of a manifest with their rows; None if one of them is invalid or lacks its seconds."""
    rows = []
    for line in jsonl_lines(path):
        try:
            row = validate_row(read_row(line.content))
        except BadRow:
            return None
        if row.audio and row.seconds is None:
            return None
        rows.append((line.content.decode().strip(), row))
    return rows


def split_files(corpus: CorpusPaths, *suffixes: str) -> dict[str, Path]:
    """The source itself, or the files in it with these suffixes, by split name."""
    named = _own_files(corpus.folder, suffixes) or _metadata_files(corpus.folder, suffixes)
    if not named:
        raise DataError(f"{corpus.source} has no {' or '.join(suffixes)} file. Give another --from.")
    splits = dict(named)
    if len(splits) < len(named):
        listed = ", ".join(path.relative_to(corpus.folder).as_posix() for _, path in named)
        raise DataError(f"Two files of {corpus.source} have the same split name: {listed}. Rename one.")
    for name, path in splits.items():  # checked before anything is written to the folder
        if path.resolve() == (corpus.to / f"{name}.jsonl").resolve():
            raise DataError(
                f"The new manifest would overwrite its source {path}. Nothing was written. Give another --to."
            )
    return splits


def _own_files(source: Path, suffixes: tuple[str, ...]) -> list[tuple[str, Path]]:
    """The file that the source is, or those directly in it, with the split that each is named after."""
    paths = [source] if source.is_file() else sorted(source.glob("*"))
    return [(path.name.partition(".")[0], path) for path in paths if path == source or _is_one_of(path, suffixes)]


def _metadata_files(folder: Path, suffixes: tuple[str, ...]) -> list[tuple[str, Path]]:
    """The tables of a Hugging Face audio folder: `train/metadata.csv` is beside the recordings of train."""
    return [(path.parent.name, path) for path in sorted(folder.glob(METADATA)) if _is_one_of(path, suffixes)]


def _is_one_of(path: Path, suffixes: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(suffixes) and not path.name.startswith(".")
