"""Steps that normalizers of several languages share."""

import re
import unicodedata

from attune.text.normalizers import Normalizer


def ascii_digits(text: str) -> str:
    """The digits of every script as 0 to 9."""
    return re.sub(r"\d", lambda match: str(int(match[0])), text)


def without(marks: str, letters: str) -> Normalizer:
    """A normalizer that takes these marks away from these letters."""

    def normalize(text: str) -> str:
        kept, letter = [], " "
        for character in unicodedata.normalize("NFD", text):
            if not unicodedata.category(character).startswith("M"):
                letter = character
            if character not in marks or letter not in letters:
                kept.append(character)
        return unicodedata.normalize("NFC", "".join(kept))

    return normalize


# Acute and grave. ё and ї are е and і with a mark of their own, which stays.
without_stress = without("\u0301\u0300", "аеиіоуыэюяє")
