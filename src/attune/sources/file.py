"""Files and folders on this machine: plain paths and `file:` addresses."""

import re
import shutil
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from attune.errors import SourceError
from attune.files import copy_tree, explain_write_errors, folder_bytes
from attune.sources import ByteRanges, Source, is_address
from attune.sources._cache import Cache, Watch, unwatched
from attune.sources._uploads import UploadedBytes
from attune.sources.hf import is_model

_BARE = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")  # a relative path, and just as well a name on the Hub

_FILES = (".jsonl", ".csv", ".tsv", ".yaml", ".nemo")  # which a model's name on the Hub does not end with


def find(address: str, cache: Cache) -> Path:
    """The path itself, or the one a `file:` address means; it must exist, and mean nothing else."""
    if re.match("file:", address, re.IGNORECASE):
        path, is_bare = _read_address(address), False
    else:
        path, is_bare = Path(address).expanduser(), bool(_BARE.fullmatch(address))
    if not path.exists():
        is_name = is_bare and path.suffix not in _FILES
        hint = f" For a model on the Hub, write hf://{address}." if is_name else ""
        raise SourceError(f"No file or folder {path} (from {Path.cwd()}). Check the path.{hint}")
    if is_bare and path.is_dir():
        _require_one_reading(address, path, cache)
    return path


def push(folder: Path, address: str, message: str, watch: Watch = unwatched) -> str:
    """Copy a folder to a path that is free yet; it appears whole."""
    to = _read_address(address) if is_address(address) else Path(address).expanduser()
    if _BARE.fullmatch(address) and not to.parent.is_dir():
        raise SourceError(f"{address} could be a folder or a model on the Hub. Write ./{address} or hf://{address}.")
    if to.exists():
        raise SourceError(f"{to} already exists. Remove it, or choose another folder.")
    with explain_write_errors(to, "Choose another folder.", SourceError):
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=".") as scratch:
            copied = UploadedBytes(address, folder_bytes(folder), watch, "copying")

            def copy(source: str, target: str) -> None:
                shutil.copy2(source, target)
                copied(Path(target).stat().st_size)

            copy_tree(folder, Path(scratch) / "whole", copy)
            (Path(scratch) / "whole").rename(to)
    return str(to)


def read_range(address: str, start: int, length: int) -> bytes:
    """Bytes of a file, fewer only where it ends."""
    path = _range_path(address)
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(length)
    except OSError as error:
        raise SourceError(f"Cannot read {path}: {error.strerror}.") from error


def size_of(address: str) -> int:
    """The size of a file in bytes."""
    path = _range_path(address)
    try:
        return path.stat().st_size
    except OSError as error:
        raise SourceError(f"Cannot read {path}: {error.strerror}.") from error


def _range_path(address: str) -> Path:
    return _read_address(address) if is_address(address) else Path(address)


def _read_address(address: str) -> Path:
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost"):
        raise SourceError(f"{address} is on another machine ({parts.netloc}); a file: address has three slashes.")
    return Path(unquote(parts.path))


def _require_one_reading(address: str, path: Path, cache: Cache) -> None:
    """Refuse a folder whose name is a model's on the Hub too; attune's own folders are known as such."""
    if (path / "recipe.yaml").is_file() or not is_model(address, cache):
        return
    raise SourceError(
        f"{address} is ambiguous:\n"
        f"  ./{address}     the folder {path.absolute()}\n"
        f"  hf://{address}  the model of that name on the Hub\n"
        "Write the one you mean."
    )


SOURCE = Source(find, push, ranges=ByteRanges(read_range, size_of))
