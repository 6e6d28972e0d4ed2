"""Thai: `basic` with one spelling of ำ and แ, and digits as 0 to 9. For word error rates see `spaced_characters`."""

import re
import unicodedata

from attune.text.normalizers import then
from attune.text.normalizers._steps import ascii_digits
from attune.text.normalizers.basic import normalize as basic

_TONE_INSIDE_AM = re.compile("\u0e4d([\u0e48-\u0e4b])\u0e32")


def _one_spelling(text: str) -> str:
    text = _TONE_INSIDE_AM.sub("\\1\u0e33", text).replace("เเ", "แ")
    return unicodedata.normalize("NFC", text)  # the tone may now stand beside other marks


NORMALIZER = then(basic, _one_spelling, ascii_digits)
