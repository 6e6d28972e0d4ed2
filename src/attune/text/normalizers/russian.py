"""Russian: `basic` without stress marks, and with е for ё, as most texts are written."""

from attune.text.normalizers import then
from attune.text.normalizers._steps import without, without_stress
from attune.text.normalizers.basic import normalize as basic

NORMALIZER = then(basic, without_stress, without("\u0308", "е"))
