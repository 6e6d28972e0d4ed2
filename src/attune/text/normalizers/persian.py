"""Persian: `arabic` with Persian ی and ک for the Arabic letters; a zero-width non-joiner does not split words."""

from attune.text.normalizers import then
from attune.text.normalizers.arabic import NORMALIZER as ARABIC

_PERSIAN_LETTERS = str.maketrans("يىك", "ییک")


def _persian_letters(text: str) -> str:
    return text.translate(_PERSIAN_LETTERS)


NORMALIZER = then(ARABIC, _persian_letters)
