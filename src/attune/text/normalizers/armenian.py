"""Armenian: `basic` that leaves և a letter, also where a sentence begins with Եվ or Եւ."""

import re

from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import normalize as basic


def _and(text: str) -> str:
    return re.sub(r"(?<!\S)ե[վւ](?!\S)", "և", text)


NORMALIZER = then(keeping("և", basic), _and)
