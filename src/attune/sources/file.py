"""Files and folders on this machine: plain paths and `file:` addresses."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from attune.errors import SourceError


def find(source: str, cache: Path) -> Path:
    """The path itself, or the one a `file:` address means; it must be there."""
    path = _read_address(source) if re.match("file:", source, re.IGNORECASE) else Path(source).expanduser()
    if not path.exists():
        raise SourceError(f"There is no file or folder {path} (from {Path.cwd()}). Check the path, or fetch it first.")
    return path


def _read_address(source: str) -> Path:
    address = urlsplit(source)
    if address.netloc not in ("", "localhost"):
        raise SourceError(f"{source} is on another machine ({address.netloc}); a file: address has three slashes.")
    return Path(unquote(address.path))


SOURCE = find
