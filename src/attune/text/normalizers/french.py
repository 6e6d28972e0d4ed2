"""French: `basic` with elided words as words of their own (`l' homme`, but `aujourd'hui`), and oe for œ, ae for æ."""

import re
import unicodedata

from attune.text.normalizers import then
from attune.text.normalizers.basic import APOSTROPHES
from attune.text.normalizers.basic import normalize as basic

_ELIDED = "l|d|j|m|t|s|n|c|ç|qu|jusqu|lorsqu|puisqu|quoiqu"
_GAP = r"[\s«»“”„\"…().,–—-]+"
_BEFORE_GAP = re.compile(rf"(?<!(?<!\w)[{APOSTROPHES}])\b({_ELIDED})[{APOSTROPHES}]{_GAP}(?=\w)", re.IGNORECASE)
_BEFORE_WORD = re.compile(rf"(?<![^\s'])({_ELIDED})'(?=\w)")
_LIGATURES = str.maketrans({"œ": "oe", "æ": "ae"})


def _join(text: str) -> str:
    """`l' « homme` as `l'homme`: an apostrophe before a gap would be lost as a quotation mark."""
    return _BEFORE_GAP.sub(r"\1'", text)


def _part(text: str) -> str:
    text = _BEFORE_WORD.sub(r"\1' ", text).translate(_LIGATURES)
    return unicodedata.normalize("NFC", text)


NORMALIZER = then(_join, basic, _part)
