"""Small language models for the tests of beams."""

import math

import torch

from attune.decoding.ngram import read_arpa


class Bigrams:
    """A language model that remembers the label before; it holds the probability of each after each."""

    def __init__(self, log_probs):
        self.log_probs = log_probs  # (V + 1, V), the last row begins

    def start(self, rows):
        before = torch.full((rows,), len(self.log_probs) - 1)
        return self.log_probs[before], (before,)

    def score(self, labels, states):
        assert len(states[0]) == len(labels)
        return self.log_probs[labels], (labels,)

    def log_prob(self, labels):
        """That of the labels in a row, one by one."""
        before = (len(self.log_probs) - 1, *labels)
        return sum(float(self.log_probs[first, label]) for first, label in zip(before, labels, strict=False))


def random_bigrams(vocabulary, seed=0, sharpness=2.0):
    logits = torch.randn(vocabulary + 1, vocabulary, generator=torch.Generator().manual_seed(seed))
    return Bigrams((sharpness * logits).log_softmax(-1))


def write_unigrams(path, probabilities, pieces, end=None):
    """An ARPA file of words with these probabilities, read back as a language model over the pieces."""
    lines = "".join(f"{math.log10(each)}\t{word}\n" for word, each in probabilities.items())
    path.write_text(f"\\data\\\n\n\\1-grams:\n-99\t<s>\n{lines}\n\\end\\\n", encoding="utf-8")
    return read_arpa(path, pieces, torch.device("cpu"), end)
