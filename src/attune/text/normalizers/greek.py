"""Greek: `basic` that keeps ς at the end of a word. `basic` writes σ, which is fine for scores but not for training."""

from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import normalize as basic

NORMALIZER = then(str.lower, keeping("ς", basic))  # lower knows where a capital Σ ends a word
