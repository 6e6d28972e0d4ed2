"""Arabic as in `arabic`, with one alef for أ, إ, آ and ٱ, which many writers do not distinguish."""

from attune.text.normalizers import then
from attune.text.normalizers._steps import without
from attune.text.normalizers.arabic import NORMALIZER as ARABIC

_MADDA_AND_HAMZA = "\u0653\u0654\u0655"


def _one_alef(text: str) -> str:
    return text.replace("ٱ", "ا")


NORMALIZER = then(ARABIC, _one_alef, without(_MADDA_AND_HAMZA, "ا"))
