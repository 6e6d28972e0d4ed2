"""Armenian: `basic` that keeps և as one letter, also where it is written եւ, or Եվ where a sentence begins with it."""

import re

from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import normalize as basic


def _and(text: str) -> str:
    return re.sub(r"(?<!\S)եվ(?!\S)|եւ", "և", text)


NORMALIZER = then(keeping("և", basic), _and)
