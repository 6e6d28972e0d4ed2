"""Kinds of pretrained models, one folder each, exporting FAMILY."""
