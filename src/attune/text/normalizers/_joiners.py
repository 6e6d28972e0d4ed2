"""Scripts in which the zero-width joiner is spelling, beside the sign that takes a consonant's vowel away."""

import re

from attune.text.normalizers import Normalizer, keeping, then
from attune.text.normalizers.basic import normalize as basic

JOINER = "\u200d"


def with_joiner(virama: str) -> Normalizer:
    """`basic` that leaves joiners next to a script's virama; others only shape what is seen, as in emoji."""
    stray = re.compile(f"(?<!{virama}){JOINER}(?!{virama})")
    return then(lambda text: stray.sub("", text), keeping(JOINER, basic))
