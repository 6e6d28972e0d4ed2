"""wav2vec2-BERT (arXiv 2312.05187), reads filterbanks. 20 ms, 25 layers of 1024."""

from attune.families.ssl.wav2vec2_like import wav2vec2_like

UPSTREAM = wav2vec2_like("wav2vec2-bert")
