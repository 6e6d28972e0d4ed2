"""WavLM (arXiv 2110.13900), with gated relative positions. 20 ms, 13 layers of 768 (base) or 25 of 1024."""

from attune.families.ssl.wav2vec2_like import wav2vec2_like

UPSTREAM = wav2vec2_like("wavlm")
