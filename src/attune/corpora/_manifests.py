"""Others' manifests as rows: JSONL in the fields that `_rows` knows, and a split for each file of a folder."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from attune.corpora._layout import Found, Place, Skipped
from attune.corpora._lines import jsonl_lines
from attune.corpora._rows import BadRow, read_row
from attune.corpora._scan import audio_path
from attune.errors import DataError


def rows_of_manifest(path: Path, root: Path) -> Iterator[Found]:
    """The rows of a JSONL file, their audio relative to `root`."""
    for line in jsonl_lines(path):
        try:
            row = read_row(line.content)
        except BadRow as bad:
            yield Skipped(f"{path.name}:{line.number}", str(bad))
            continue
        yield replace(row, audio=audio_path(root.absolute(), row.audio) if row.audio else None)


def files_of(place: Place, *suffixes: str) -> dict[str, Path]:
    """The source itself, or the files in it with these endings, by the name of the split they make."""
    if place.folder.is_file():
        paths = [place.folder]
    else:
        names = sorted(path for path in place.folder.glob("*") if path.name.lower().endswith(suffixes))
        paths = [path for path in names if not path.name.startswith(".")]
    if not paths:
        raise DataError(f"{place.source} has no file that ends in {' or '.join(suffixes)}.")
    splits = {path.name.partition(".")[0]: path for path in paths}
    if len(splits) < len(paths):
        raise DataError(f"Two files of {place.source} would make one split: {', '.join(path.name for path in paths)}.")
    for name, path in splits.items():  # told before anything is put into a folder that will be read again
        if path.resolve() == (place.to / f"{name}.jsonl").resolve():
            raise DataError(
                f"{path} is read, and what is made of it would have its name. Nothing was written; give another --to."
            )
    return splits
