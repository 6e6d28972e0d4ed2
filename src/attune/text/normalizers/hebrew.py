"""Hebrew: `basic` without vowel points and chant marks, and with acronyms whole: צה״ל and צה"ל are צהל."""

import re
import unicodedata

from attune.text.normalizers import then
from attune.text.normalizers.basic import normalize as basic

_POINTS = re.compile("[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\ufb1e]")
_QUOTE_IN_ACRONYM = re.compile("(?<=[א-ת])(?:[\"״”“„]|['’׳]{2})(?=[א-ת])")


def _letters(text: str) -> str:
    return _QUOTE_IN_ACRONYM.sub("", _POINTS.sub("", unicodedata.normalize("NFD", text)))


NORMALIZER = then(_letters, basic)
