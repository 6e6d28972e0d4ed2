"""Names that a task has learned from its training data, in a file: labels, speakers, phones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from attune.errors import ModelError
from attune.files import parse_json, write_text


def write_names(path: Path, names: Sequence[str] | Sequence[Sequence[str]]) -> None:
    """Write names in their order."""
    write_text(path, json.dumps(names, ensure_ascii=False, indent=1) + "\n")


def read_names(path: Path) -> list[str]:
    """The names in a file, in their order."""
    return cast(list[str], read_list(path))


def read_list(path: Path) -> list[object]:
    """The list in a file."""
    try:
        names: list[object] = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"Cannot read {path}: {error}. Restore the file, or train in a new folder (run=…).") from error
    return names
