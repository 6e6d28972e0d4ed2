"""The data of a new recipe: manifests that are there or are prepared now, with dev and test held out of training.

A manifest is used as it is if every row can be; otherwise it is prepared again, which measures and skips rows.
"""

import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attune.corpora import Row, assign_groups, complete_rows
from attune.errors import DataError
from attune.files import explain_write_errors, parse_json, write_text
from attune.processes import cores
from attune.site import Site
from attune.sources import is_remote
from attune.stages.prepare import Preparing, Understood, prepare_data

HELD_OUT = 0.1  # of the rows, for dev and for test each, where the data has no such splits
SPLIT_NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "eval"),
    "test": ("test", "testing"),
}
SUFFIXES = re.compile(r"(\.(csv|tsv|jsonl?|parquet|zip|tar|t?gz|bz2|xz|nemo|pt|bin|safetensors))+$", re.IGNORECASE)
HERE = (".", "./", "..", "../")
LEARNED = ("text", "speaker", "language")  # fields that a model may learn, besides the labels

Lines = Sequence[tuple[str, Row]]


@dataclass(frozen=True, slots=True)
class SplitOfData:
    """A manifest, how much it has, and what its first row has that could be learned."""

    manifest: Path
    rows: int
    hours: float
    fields: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _HeldOut:
    manifests: Mapping[str, Path]
    note: str  # how much it is, and what no two splits share


def short_name(source: str) -> str:
    """A short name for a path or an address."""
    _, is_address, place = source.rpartition("://")
    path = (
        re.split("[#?]", place)[0] if is_address else str(Path(place).absolute().resolve() if place in HERE else place)
    )
    name = path.rstrip("/").rpartition("/")[2].partition("@")[0]  # without a revision or a step
    return _file_name(SUFFIXES.sub("", name) or "data")


def splits_of(
    data: str, options: Sequence[str], site: Site
) -> Generator[Preparing | Understood, None, dict[str, SplitOfData]]:
    """The splits by name: manifests that are there, or prepared now; what is missing is held out of training."""
    own = {} if is_remote(data) else _own_manifests(Path(data).expanduser())
    if own and not options and all(complete_rows(manifest) for manifest in own.values()):
        found = own
    else:
        source = str(next(iter(own.values()))) if len(own) == 1 else data
        found = yield from _prepared(source, Path("data") / _file_name(short_name(data), *options), options, site)
    named = _by_role(found, data)
    if "dev" not in named:
        shares = {"dev": HELD_OUT} if "test" in named else {"test": HELD_OUT, "dev": HELD_OUT}
        held_out = _hold_out(data, named["train"], shares)
        yield Understood("", (held_out.note,))
        named |= held_out.manifests
    return {split: _measured(named[split]) for split in SPLIT_NAMES if split in named}


def _own_manifests(path: Path) -> dict[str, Path]:
    """Manifests of attune's own, a file or those of a folder; not what an earlier `attune new` held out of them."""
    candidates = [path] if path.is_file() else sorted(path.glob("*.jsonl")) if path.is_dir() else []
    found = {each.stem: each.absolute() for each in candidates if _is_manifest(each)}
    held_out = {f"{name}-{split}" for name in found for split in SPLIT_NAMES}
    return {name: each for name, each in found.items() if name not in held_out}


def _is_manifest(path: Path) -> bool:
    """Whether the first line is a row with the fields that every manifest of attune's has."""
    if path.suffix != ".jsonl":
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        try:
            first = parse_json(file.readline())
        except ValueError:
            return False
    return isinstance(first, dict) and {"id", "audio"} <= first.keys()


def _prepared(
    data: str, to: Path, options: Sequence[str], site: Site
) -> Generator[Preparing | Understood, None, dict[str, Path]]:
    prepared = yield from prepare_data(data, to, site, cores(), options)
    yield Understood("", tuple(line for split in prepared for line in split.describe_skipped()))
    if not any(split.rows for split in prepared):
        reasons = [f"{count:,} × {reason}" for split in prepared for reason, count in split.left_out.items()]
        skipped = f" ({', '.join(reasons[:3])})" if reasons else ""
        raise DataError(f"{data} has no row that can be used{skipped}. Fix the rows, or name other data.")
    return {split.split: split.manifest for split in prepared if split.rows}


def _by_role(found: Mapping[str, Path], data: str) -> dict[str, Path]:
    roles = {role: next((found[each] for each in names if each in found), None) for role, names in SPLIT_NAMES.items()}
    named = {role: path for role, path in roles.items() if path}
    if "train" in named:
        return named
    if len(found) > 1:
        raise DataError(f"{data} has {', '.join(found)}, but no train. Name one manifest.")
    return {"train": next(iter(found.values()))}


def _hold_out(data: str, manifest: Path, shares: Mapping[str, float]) -> _HeldOut:
    """Cut a manifest by speaker, or by recording where there are too few speakers; written beside it."""
    rows = _lines(manifest)
    if len(rows) <= len(shares):
        raise DataError(
            f"{data} has {len(rows)} row{'' if len(rows) == 1 else 's'}, too little to hold out "
            f"{' and '.join(sorted(shares))}. Add more, or give a folder with train.jsonl and dev.jsonl."
        )
    owners, kept_apart = _assigned(rows, shares)
    written = {}
    for split in ("train", *shares):
        path = manifest.with_name(f"{manifest.stem}-{split}.jsonl")
        own = [line for (line, _), owner in zip(rows, owners, strict=True) if owner == split]
        with explain_write_errors(path, "Copy the data to a folder of your own first.", DataError):
            write_text(path, "".join(f"{line}\n" for line in own))
        written[split] = path
    parts = ", ".join(f"{split}: {100 * owners.count(split) / len(rows):.0f} %" for split in sorted(shares))
    return _HeldOut(written, f"{parts} of the rows, {kept_apart}")


def _assigned(rows: Lines, shares: Mapping[str, float]) -> tuple[list[str], str]:
    """The split of each row, and what no two splits share; speakers are not worth half of the training data."""
    groups = [row.speaker or row.audio or row.id for _, row in rows]
    if len(set(groups)) > len(shares):
        owner_of = assign_groups(Counter(groups), shares)
        owners = [owner_of[group] for group in groups]
        if 2 * owners.count("train") >= len(rows):
            has_speakers = any(row.speaker for _, row in rows)
            unknown = "speakers unknown (a table: speaker=COLUMN; folders named after them: speaker_from_folder=true)"
            return owners, "other speakers than in train" if has_speakers else unknown
    owner_of = assign_groups(Counter(row.id for _, row in rows), shares)
    return [owner_of[row.id] for _, row in rows], "too few speakers to keep them apart"


def _measured(manifest: Path) -> SplitOfData:
    rows = [row for _, row in _lines(manifest)]
    fields = tuple(name for name in LEARNED if getattr(rows[0], name))
    hours = sum(row.seconds or 0.0 for row in rows) / 3600
    return SplitOfData(manifest, len(rows), hours, fields, tuple(rows[0].labels))


def _lines(manifest: Path) -> Lines:
    return complete_rows(manifest) or ()


def _file_name(name: str, *options: str) -> str:
    words = [name, *(option.partition("=")[2] for option in options)]
    return "-".join(re.sub(r"[^\w.=-]+", "-", word) for word in words)
