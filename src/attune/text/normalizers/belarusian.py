"""Belarusian: `basic` without stress marks. Any apostrophe stays inside its word, ў, ё and й keep their marks."""

from attune.text.normalizers import then
from attune.text.normalizers._steps import without_stress
from attune.text.normalizers.basic import normalize as basic

NORMALIZER = then(basic, without_stress)
