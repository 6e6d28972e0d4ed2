"""JSON files beside other toolkits' weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attune.errors import ModelError
from attune.files import write_text


def read_json(path: Path) -> dict[str, Any]:
    """The values by name that a file of transformers' holds."""
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"Cannot read {path}: {error}") from error
    if not isinstance(written, dict):
        raise ModelError(f"{path} is not a JSON object. Download it again.")
    return written


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values by name; the file is there whole or not at all."""
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")
