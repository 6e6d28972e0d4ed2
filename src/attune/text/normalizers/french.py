"""French: `basic` with elided words as words of their own (`l' homme`, but `aujourd'hui`), and oe for œ, ae for æ."""

import re
import unicodedata

from attune.text.normalizers import then
from attune.text.normalizers.basic import APOSTROPHES
from attune.text.normalizers.basic import normalize as basic

_ELIDED = "l|d|j|m|t|s|n|c|ç|qu|jusqu|lorsqu|puisqu|quoiqu"
_GAP = r"[\s«»“”„\"…().,–—-]+"
_BEFORE_GAP = re.compile(rf"({_ELIDED})[{APOSTROPHES}]{_GAP}(?=\w)", re.IGNORECASE)
_BEFORE_WORD = re.compile(rf"(?<![^\s'])({_ELIDED})'(?=\w)")
_LIGATURES = str.maketrans({"œ": "oe", "æ": "ae"})


def _join(text: str) -> str:
    """`l' « homme` as `l'homme`: an apostrophe before a gap would be lost as a quotation mark."""
    return _BEFORE_GAP.sub(lambda match: f"{match[1]}'" if _begins_word(text, match.start()) else match[0], text)


def _begins_word(text: str, place: int) -> bool:
    """Whether a word begins here, alone or behind an apostrophe (`rock'n' roll`) that does not open a quotation."""
    if text[place - 1 : place] in (*APOSTROPHES,):
        return _is_spelling(text[max(0, place - 2) : place - 1])
    return not _is_spelling(text[place - 1 : place])


def _is_spelling(character: str) -> bool:
    """Whether this is part of a word: a letter, its mark, a digit. Marks are no word characters to `re`."""
    return bool(character) and not character.isspace() and unicodedata.category(character)[0] not in "PSZ"


def _part(text: str) -> str:
    text = _BEFORE_WORD.sub(r"\1' ", text).translate(_LIGATURES)
    return unicodedata.normalize("NFC", text)


NORMALIZER = then(_join, basic, _part)
