"""Exactly Whisper's BasicTextNormalizer, to compare with published figures. It splits words at combining marks.

Every combining mark and apostrophe becomes a space, so नमस्ते is scored as `नमस त` and `раз'яднаць` as two words.
Words in brackets are removed as well. Score with `basic` unless you compare with a published figure.
"""

import re
import unicodedata


class _Characters(dict[int, str]):
    """What becomes of each character: itself, or a space. Filled as characters are met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = kept = " " if unicodedata.category(character)[0] in "MSP" else character
        return kept


_CHARACTERS = _Characters()


def without_brackets(text: str) -> str:
    """The text without what stands in brackets, parentheses or angles: Whisper's models put remarks there."""
    text = re.sub(r"[<\[][^>\]]*[>\]]", "", text)
    return re.sub(r"\(([^)]+?)\)", "", text)


def normalize(text: str) -> str:
    """Lower case, with a space for every mark, symbol and punctuation character."""
    text = unicodedata.normalize("NFKC", without_brackets(text.lower()))
    return re.sub(r"\s+", " ", text.translate(_CHARACTERS).lower())


NORMALIZER = normalize
