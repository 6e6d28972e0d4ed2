"""Scripts in which the zero-width joiner is spelling, beside the sign that takes a consonant's vowel away."""

import re
import unicodedata

from attune.text.normalizers import Normalizer, keeping, then
from attune.text.normalizers.basic import normalize as basic

JOINER = "\u200d"


def with_joiner(virama: str) -> Normalizer:
    """`basic` that leaves joiners next to a script's virama; others only shape what is seen, as in emoji."""
    stray = re.compile(f"(?<!{virama}){JOINER}(?!{virama})")

    def without_stray(text: str) -> str:
        # Composed before and after: what is next to what depends on the order of the marks.
        return unicodedata.normalize("NFC", stray.sub("", unicodedata.normalize("NFC", text)))

    return then(without_stray, keeping(JOINER, basic), without_stray)
