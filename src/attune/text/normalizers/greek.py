"""Greek: `basic` that leaves ς at the end of a word. `basic` makes it σ, which is a harm to what is learned."""

from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import normalize as basic

NORMALIZER = then(str.lower, keeping("ς", basic))  # lower knows where a capital Σ ends a word
