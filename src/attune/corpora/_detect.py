"""What kind of data a path holds, by the files that are there: which corpus plug-in reads it."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from attune.corpora._layout import AUDIO_FILES, Skipped, find_files
from attune.corpora._shards import read_shard
from attune.corpora._tarred import MANIFEST
from attune.errors import DataError
from attune.files import parse_json

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".txz", ".tbz2")


def is_archive(path: Path) -> bool:
    """Whether a file is to be unpacked: a zip or tar, but not a shard of samples."""
    if not path.is_file() or not path.name.lower().endswith(ARCHIVES):
        return False
    return not (path.suffix.lower() == ".tar" and _is_shard(path))


def detect_corpus(path: Path) -> str:
    """The name of the corpus plug-in that reads this file or folder."""
    found = next((name for name, fits in (_FOLDERS if path.is_dir() else _FILES).items() if fits(path)), None)
    if found:
        return found
    raise DataError(
        f"{path} is not data that attune recognizes: no CSV or TSV, JSON lines, Parquet, shards, archive, or audio "
        "with text files. Name the corpus, see `attune list corpora`."
    )


def unpacked_root(folder: Path) -> Path:
    """The folder that has the data: archives often hold one folder that holds everything."""
    inside = [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "__MACOSX"))]
    return unpacked_root(inside[0]) if len(inside) == 1 and inside[0].is_dir() else folder


def _has(*patterns: str) -> Callable[[Path], bool]:
    return lambda folder: all(any(True for _ in folder.glob(pattern)) for pattern in patterns)


def _holds(*suffixes: str) -> Callable[[Path], bool]:
    """Whether a file has this suffix, or a folder has such files directly in it."""

    def fits(path: Path) -> bool:
        names = [path.name] if path.is_file() else [each.name for each in path.iterdir()]
        return any(name.lower().endswith(suffixes) and not name.startswith(".") for name in names)

    return fits


def _is_shard(path: Path) -> bool:
    """Whether a tar begins with a recording that has its text or labels beside it."""
    try:
        first = next(read_shard(str(path)), None)
    except DataError:
        return False
    if first is None or isinstance(first.found, Skipped):
        return False
    return bool(first.found.text or first.found.labels)


def _has_cuts(path: Path) -> bool:
    """Whether JSON lines are Lhotse's: each has a recording with sources."""
    paths = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    if any(each.name.endswith(".jsonl.gz") for each in ([path] if path.is_file() else path.iterdir())):
        return True
    return any("recording" in fields for each in paths[:1] for fields in _first_objects(each))


def _first_objects(path: Path) -> Iterator[dict[str, object]]:
    if path.suffix not in (".json", ".jsonl"):
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in islice(file, 1):
            try:
                fields = parse_json(line)
            except ValueError:
                return
            if isinstance(fields, dict):
                yield fields


def _has_nemo_manifest(folder: Path) -> bool:
    """Whether there are JSON lines, or .json files that hold those of NeMo, whose recordings are not in shards."""
    if _has("*.tar", MANIFEST)(folder):
        return False
    return _holds(".jsonl")(folder) or any(
        "audio_filepath" in fields for each in folder.glob("*.json") for fields in _first_objects(each)
    )


def _has_parquet(folder: Path) -> bool:
    return any(True for _ in islice(find_files(folder, ".parquet"), 1))


def _has_audio(folder: Path) -> bool:
    return any(True for _ in islice(find_files(folder, *AUDIO_FILES), 1))


_FILES: dict[str, Callable[[Path], bool]] = {
    "csv": _holds(".csv", ".tsv"),
    "huggingface": _holds(".parquet"),
    "lhotse": _has_cuts,
    "nemo": _holds(".jsonl", ".json"),
    "shards": _holds(".tar"),
}
_FOLDERS: dict[str, Callable[[Path], bool]] = {  # the more special first
    "common_voice": _has("clips", "*.tsv"),
    "kaldi": lambda folder: _has("wav.scp")(folder) or _has("*/wav.scp")(folder),
    "speech_commands": _has("testing_list.txt", "validation_list.txt"),
    "librispeech": _has("SPEAKERS.TXT", "*/*/*/*.trans.txt"),
    "huggingface": lambda folder: (
        (folder / "dataset_dict.json").exists()
        or (folder / "state.json").exists()
        or _has_parquet(folder)
        or _has("transcript/**/*.tsv", "audio/**/*.tar")(folder)
    ),
    "csv": lambda folder: _holds(".csv", ".tsv")(folder) or _has("*/metadata.csv")(folder),
    "lhotse": _has_cuts,
    "nemo": lambda folder: _has_nemo_manifest(folder) or _has("*/metadata.jsonl")(folder),
    "shards": _holds(".tar"),
    "folder": _has_audio,
}
