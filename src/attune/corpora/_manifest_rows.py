"""Rows from the manifests of other toolkits: JSONL with the fields of `_rows`, one split for each file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from attune.corpora._layout import CorpusPaths, RowOrSkipped, Skipped
from attune.corpora._lines import jsonl_lines
from attune.corpora._rows import BadRow, read_row
from attune.corpora._scan import resolve_audio
from attune.errors import DataError


def manifest_rows(path: Path, root: Path) -> Iterator[RowOrSkipped]:
    """The rows of a JSONL file, their audio relative to `root`."""
    for line in jsonl_lines(path):
        try:
            row = read_row(line.content)
        except BadRow as bad:
            yield Skipped(f"{path.name}:{line.number}", str(bad))
            continue
        yield replace(row, audio=resolve_audio(root.absolute(), row.audio) if row.audio else None)


def split_files(corpus: CorpusPaths, *suffixes: str) -> dict[str, Path]:
    """The source itself, or the files in it with these suffixes, by split name."""
    if corpus.folder.is_file():
        paths = [corpus.folder]
    else:
        names = sorted(path for path in corpus.folder.glob("*") if path.name.lower().endswith(suffixes))
        paths = [path for path in names if not path.name.startswith(".")]
    if not paths:
        raise DataError(f"{corpus.source} has no {' or '.join(suffixes)} file. Give another --from.")
    splits = {path.name.partition(".")[0]: path for path in paths}
    if len(splits) < len(paths):
        listed = ", ".join(path.name for path in paths)
        raise DataError(f"Two files of {corpus.source} have the same split name: {listed}. Rename one.")
    for name, path in splits.items():  # checked before anything is written to the folder
        if path.resolve() == (corpus.to / f"{name}.jsonl").resolve():
            raise DataError(
                f"The new manifest would overwrite its source {path}. Nothing was written. Give another --to."
            )
    return splits
