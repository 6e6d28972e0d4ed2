"""DistilHuBERT (arXiv 2110.01900), a HuBERT of two layers. 20 ms, 3 layers of 768."""

from attune.families.ssl.wav2vec2_like import wav2vec2_like

UPSTREAM = wav2vec2_like("hubert")
