"""Malayalam: `basic` with one spelling of the chillu letters (ൻ ർ ൽ ൾ ൺ ൿ), of ന്റ and of the vowel sign au."""

import re

from attune.text.normalizers import then
from attune.text.normalizers.basic import normalize as basic

_VIRAMA, _JOINER = "\u0d4d", "\u200d"
_CHILLU = dict(zip("നരലളണക", "ൻർൽൾൺൿ", strict=True))


def _atomic_chillu(text: str) -> str:
    """Before Unicode 5.1 a chillu was its consonant, a virama and a joiner; `basic` would drop the joiner."""
    return re.sub(f"([{''.join(_CHILLU)}]){_VIRAMA}{_JOINER}", lambda match: _CHILLU[match[1]], text)


def _common_forms(text: str) -> str:
    text = re.sub(f"ൻ{_VIRAMA}?റ", f"ന{_VIRAMA}റ", text)
    return re.sub("\u0d46*\u0d4c", "\u0d57", text)


NORMALIZER = then(_atomic_chillu, basic, _common_forms)
