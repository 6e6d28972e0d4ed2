"""Decoding: from a model's scorer to an output for each utterance. `search.py` is the entry."""
