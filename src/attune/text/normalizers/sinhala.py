"""Sinhala: `basic` that leaves the joiner with which ශ්‍රී is spelled."""

from attune.text.normalizers._joiners import with_joiner

NORMALIZER = with_joiner("\u0dca")
