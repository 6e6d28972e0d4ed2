"""One file per normalizer, each exporting NORMALIZER: text to the text that is scored.

Twice is as good as once, but for Whisper's rules, which are kept as they are published. `then` and `keeping` make new
ones from those there are.
"""

from collections.abc import Callable
from itertools import count

Normalizer = Callable[[str], str]

# A private use area, where no text has letters and no normalizer changes any. Each stands for one character of one
# `keeping` alone, so that one may be around another.
_STAND_INS = count(0xF0000)


def then(*normalizers: Normalizer) -> Normalizer:
    """One normalizer that applies all of them, from left to right."""

    def normalize(text: str) -> str:
        for step in normalizers:
            text = step(text)
        return text

    return normalize


def keeping(characters: str, normalizer: Normalizer) -> Normalizer:
    """The same normalizer, but these characters pass through it untouched, as letters."""
    hidden = {ord(character): chr(next(_STAND_INS)) for character in characters}
    shown = {ord(stand_in): chr(code) for code, stand_in in hidden.items()}
    hidden |= dict.fromkeys(shown, " ")

    def normalize(text: str) -> str:
        return normalizer(text.translate(hidden)).translate(shown)

    return normalize
