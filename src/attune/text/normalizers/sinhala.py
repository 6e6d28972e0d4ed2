"""Sinhala: `basic` that keeps the joiner in ශ්‍රී."""

from attune.text.normalizers._joiners import with_joiner

NORMALIZER = with_joiner("\u0dca")
