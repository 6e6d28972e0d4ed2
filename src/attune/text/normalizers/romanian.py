"""Romanian: `basic` with the comma under ș and ț, where older texts have a cedilla."""

import re
import unicodedata

from attune.text.normalizers import then
from attune.text.normalizers.basic import normalize as basic

_CEDILLA, _COMMA_BELOW = "\u0327", "\u0326"


def _with_comma(text: str) -> str:
    text = re.sub(f"(?<=[st]){_CEDILLA}+", _COMMA_BELOW, unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", text)


NORMALIZER = then(basic, _with_comma)
