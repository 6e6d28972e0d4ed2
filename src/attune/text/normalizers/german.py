"""German: `basic` that leaves ß alone. `basic` makes it ss, which is no harm to scores but is to what is learned."""

from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import normalize as basic

NORMALIZER = then(str.lower, keeping("ß", basic))  # lower: the capital ẞ too
