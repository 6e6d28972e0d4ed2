"""HuBERT (arXiv 2106.07447). 20 ms, 13 layers of 768 (base), 25 of 1024 (large) or 49 of 1280."""

from attune.families.ssl.wav2vec2_like import wav2vec2_like

UPSTREAM = wav2vec2_like("hubert")
