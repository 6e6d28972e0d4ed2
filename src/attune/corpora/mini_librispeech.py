"""Mini LibriSpeech: five hours of LibriSpeech to try things on (openslr.org/31)."""

from attune.corpora._librispeech import librispeech_layout

CORPUS = librispeech_layout("train-clean-5", "dev-clean-2")
