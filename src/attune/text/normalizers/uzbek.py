"""Uzbek in Latin letters: `basic` that keeps oʻ and gʻ, at the end of a word too, whichever apostrophe was typed."""

import re

from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import APOSTROPHES
from attune.text.normalizers.basic import normalize as basic


def _unify(text: str) -> str:
    text = re.sub(f"[{APOSTROPHES}]", "'", text)
    return re.sub("(?<=[og])'", "ʻ", text, flags=re.IGNORECASE)


NORMALIZER = then(_unify, keeping("ʻ", basic), _unify)  # again: `basic` may have dropped something in between
