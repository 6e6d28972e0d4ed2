"""Catalan: `basic` that keeps the dot of `col·lecció`, whichever dot was typed."""

import re
import unicodedata

from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import normalize as basic

_TYPED_DOT = re.compile(r"(?<=l)[•‧∙⋅・\u0387](?=l)|(?<=\wl)\.(?=l\w)", re.IGNORECASE)
_OTHER_DOT = re.compile(r"(?<!l)·|·(?!l)", re.IGNORECASE)
_L_WITH_DOT = str.maketrans({"ŀ": "l·", "Ŀ": "L·"})


def _unify(text: str) -> str:
    text = unicodedata.normalize("NFC", text).translate(_L_WITH_DOT)
    return _OTHER_DOT.sub("", _TYPED_DOT.sub("·", text))


NORMALIZER = then(_unify, keeping("·", basic))
