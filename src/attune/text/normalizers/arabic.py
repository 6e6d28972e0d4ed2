"""Arabic: `basic` without short vowels and other tashkil, and with digits as 0 to 9."""

import re

from attune.text.normalizers import then
from attune.text.normalizers._steps import ascii_digits
from attune.text.normalizers.basic import normalize as basic

# Short vowels, doubling and recitation marks. Hamza and madda are not among them: they make other letters.
_TASHKIL = re.compile(
    "[\u0610-\u061a\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u08d3-\u08ff]"
)


def _without_tashkil(text: str) -> str:
    return _TASHKIL.sub("", text)


# The second time for what only a mark has held together.
NORMALIZER = then(basic, _without_tashkil, basic, ascii_digits)
