"""The encoder that wav2vec 2.0, HuBERT, WavLM, data2vec and their like have in common, written out once."""
