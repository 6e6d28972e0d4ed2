"""LibriSpeech: a thousand hours of read English (openslr.org/12); `--from` is where its archives were unpacked."""

from attune.corpora._librispeech import librispeech_layout

CORPUS = librispeech_layout(
    "train-clean-100", "train-clean-360", "train-other-500", "dev-clean", "dev-other", "test-clean", "test-other"
)
