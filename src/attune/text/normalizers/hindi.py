"""Hindi: `basic` with one spelling for common variants: फ़िल्म as फिल्म, हिन्दी as हिंदी, हाँ as हां, digits as 0 to 9."""

import re

from attune.text.normalizers import then
from attune.text.normalizers._steps import ascii_digits, without
from attune.text.normalizers.basic import normalize as basic

_NUKTA, _VIRAMA = "\u093c", "\u094d"
_CHANDRABINDU, _ANUSVARA = "\u0901", "\u0902"

# A nasal may be written as a dot before the stops of its own place, and only there: अन्न and सम्मान stay.
_NASALS_AND_STOPS = {"ङ": "कखगघ", "ञ": "चछजझ", "ण": "टठडढ", "न": "तथदध", "म": "पफबभ"}
_NASAL = re.compile(
    "|".join(f"(?<!{_VIRAMA}){nasal}{_VIRAMA}(?=[{stops}])" for nasal, stops in _NASALS_AND_STOPS.items())
)


def _one_nasal_sign(text: str) -> str:
    return _NASAL.sub(_ANUSVARA, text).replace(_CHANDRABINDU, _ANUSVARA)


# The dots of ड़ and ढ़ are no matter of taste.
NORMALIZER = then(basic, without(_NUKTA, "कखगजफ"), _one_nasal_sign, ascii_digits)
