"""Nepali: `basic` that keeps the joiner of the eyelash ra, as in गर्‍यो."""

from attune.text.normalizers._joiners import with_joiner

NORMALIZER = with_joiner("\u094d")
