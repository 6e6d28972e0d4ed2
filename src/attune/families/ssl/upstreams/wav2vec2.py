"""wav2vec 2.0 (arXiv 2006.11477), also XLS-R and MMS. 20 ms, 13 layers of 768 (base) or 25 of 1024."""

from attune.families.ssl.wav2vec2_like import wav2vec2_like

UPSTREAM = wav2vec2_like("wav2vec2")
