"""Turkish and Azerbaijani: `basic` with I as the capital of ı and İ as that of i, so that ISI is ısı."""

import unicodedata

from attune.text.normalizers import then
from attune.text.normalizers._steps import without
from attune.text.normalizers.basic import normalize as basic

_SMALL_I = str.maketrans({"I": "ı", "İ": "i"})


def _lower_i(text: str) -> str:
    return unicodedata.normalize("NFC", text).translate(_SMALL_I)


# A dot over i is what other software makes of İ.
NORMALIZER = then(_lower_i, basic, without("\u0307", "i"))
