"""Bengali: `basic` that keeps the joiner that distinguishes র‍্যাব from র্যাব."""

from attune.text.normalizers._joiners import with_joiner

NORMALIZER = with_joiner("\u09cd")
