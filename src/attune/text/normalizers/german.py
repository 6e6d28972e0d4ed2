"""German: `basic` that keeps ß. `basic` writes ss, which is fine for scores but not for training."""

from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import normalize as basic

NORMALIZER = then(str.lower, keeping("ß", basic))  # lower: the capital ẞ too
