"""Color and bold for terminals, never for files, pipes or where NO_COLOR is set (https://no-color.org); durations."""

from __future__ import annotations

import os
from typing import Literal, TextIO

Style = Literal["bold", "good", "warning", "error"]
CODES: dict[Style, str] = {"bold": "1", "good": "32", "warning": "33", "error": "31"}


def has_color(stream: TextIO) -> bool:
    """Whether the stream is a terminal that shows colors."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def duration(seconds: float) -> str:
    """How much audio there is: in hours, or in minutes where that is little."""
    return f"{seconds / 3600:.2f} h" if seconds >= 360 else f"{seconds / 60:.1f} min"


def styled(text: str, style: Style, stream: TextIO) -> str:
    """The text with a style, where the stream shows one."""
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if has_color(stream) else text
