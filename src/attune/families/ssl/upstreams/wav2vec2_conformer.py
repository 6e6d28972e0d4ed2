"""wav2vec 2.0 with Conformer layers (arXiv 2010.05171). 20 ms, 25 layers of 1024."""

from attune.families.ssl.wav2vec2_like import wav2vec2_like

UPSTREAM = wav2vec2_like("wav2vec2-conformer")
