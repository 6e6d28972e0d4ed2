"""A .jsonl file that grows by a line for each result, so that work that was cut off goes on where it was."""

import json
import os
from pathlib import Path

from attune.errors import DataError
from attune.files import explain_write_errors, require_writable

REMEDY = "Choose another file, or free some space; finished results are kept."


class Lines:
    """Results by id. A line is on disk when `add` returns; half a line, as a kill leaves it, is taken away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: set[str] = set()
        require_writable(path, REMEDY)
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        for number, line in enumerate(whole.split(b"\n")[:-1], 1):
            try:
                self.ids.add(str(json.loads(line)["id"]))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise DataError(f"{path}:{number} is not a result: {line[:60]!r}. Choose another file.") from error
        with explain_write_errors(path, REMEDY), path.open("ab") as file:
            file.truncate(len(whole))

    def add(self, name: str, **values: object) -> None:
        """Append one result."""
        with explain_write_errors(self.path, REMEDY), self.path.open("a", encoding="utf-8") as file:
            # A name that is not UTF-8 can be written as escapes alone.
            file.write(json.dumps({"id": name, **values}, ensure_ascii=not _is_text(name)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.ids.add(name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
