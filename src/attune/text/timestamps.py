"""Timestamps inside a transcript, `<|0.00|> So it is.<|1.20|>`, for models that learn to predict them.

The text between them is normalized and scored. A transcript without timestamps is returned unchanged.
"""

import re
from collections.abc import Callable

from attune.text.languages import join_texts

_MARK = re.compile(r"<\|(\d+(?:\.\d+)?)\|>")


def split_at_timestamps(text: str) -> list[str]:
    """Text and timestamps in turns: text, seconds, text, …, seconds, text."""
    return _MARK.split(text)


def map_between_timestamps(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the text between the timestamps."""
    parts = split_at_timestamps(text)
    return "".join(f"<|{part}|>" if place % 2 else change(part) for place, part in enumerate(parts))


def scale_timestamps(text: str, factor: float) -> str:
    """Multiply the timestamps by `factor`, after a change of speed of the audio."""
    parts = split_at_timestamps(text)
    return "".join(f"<|{float(part) * factor:.2f}|>" if place % 2 else part for place, part in enumerate(parts))


def strip_timestamps(text: str, language: str | None) -> str:
    """The transcript without its timestamps."""
    texts = split_at_timestamps(text)[::2]
    return text if len(texts) == 1 else join_texts(texts, language)
