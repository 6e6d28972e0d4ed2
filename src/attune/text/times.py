"""Times written in a text, `<|0.00|> So it is.<|1.20|>`, for models that learn to say when.

What is normalized and compared is what lies between them. A text without times is left alone.
"""

import re
from collections.abc import Callable

from attune.text.languages import joined

_MARK = re.compile(r"<\|(\d+(?:\.\d+)?)\|>")


def split_at_times(text: str) -> list[str]:
    """What is said and when, in turns: text, seconds, text, …, seconds, text."""
    return _MARK.split(text)


def between_times(text: str, change: Callable[[str], str]) -> str:
    """The text with its times, and what lies between them changed."""
    parts = split_at_times(text)
    return "".join(f"<|{part}|>" if place % 2 else change(part) for place, part in enumerate(parts))


def at_pace(text: str, factor: float) -> str:
    """The text with its times so many times as late: the audio was slowed down or sped up."""
    parts = split_at_times(text)
    return "".join(f"<|{float(part) * factor:.2f}|>" if place % 2 else part for place, part in enumerate(parts))


def without_times(text: str, language: str | None) -> str:
    """What is said alone."""
    said = split_at_times(text)[::2]
    return text if len(said) == 1 else joined(said, language)
