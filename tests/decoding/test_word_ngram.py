"""A word model scores each word of a CTC beam where it ends, and the sentence where the audio ends."""

import math

import pytest
import torch

from attune.decoding import ctc
from attune.decoding.fusion import Fusion
from attune.decoding.word_ngram import read_word_arpa
from attune.text.arpa import likelihood, write_arpa
from attune.text.kneser_ney import estimate
from attune.types import CtcScorer

LETTERS = ("<blank>", "<unk>", "▁", "a", "b", "c")
PIECES = ("<blank>", "<unk>", "▁ab", "▁a", "b", "▁c", "a", "▁")
TEXT = [["ab", "c"], ["ab", "ab", "c"], ["c", "ab"], ["Bc", "c"], ["ab", "c"]]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model():
    return estimate(TEXT, 2)


@pytest.fixture(scope="module")
def arpa(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "words.arpa"
    write_arpa(model, path)
    return path


@pytest.mark.parametrize(
    ("pieces", "written", "words"),
    [
        (LETTERS, ["a", "b", "▁", "c"], ["ab", "c"]),
        (LETTERS, ["b", "c", "▁"], ["Bc"]),  # the model writes no capitals
        (LETTERS, ["c", "a", "▁", "a", "b"], ["ca", "ab"]),  # ca is no word of the file
        (PIECES, ["▁ab", "▁c"], ["ab", "c"]),
        (PIECES, ["▁a", "b", "▁c", "▁a", "b"], ["ab", "c", "ab"]),
        (PIECES, [], []),
    ],
)
def test_any_spelling_of_a_sentence_has_the_probability_of_its_words(model, arpa, pieces, written, words):
    lm = read_word_arpa(arpa, pieces, CPU)
    (parts,) = Fusion(lm, 0.5).parts([[pieces.index(piece) for piece in written]], None)
    assert parts["lm"] == pytest.approx(0.5 * likelihood(model, [words]).log_prob, abs=1e-4)


def test_a_beam_finds_the_word_that_the_file_has(arpa):
    frames = torch.full((5, len(LETTERS)), 1e-3)
    for place, letters in enumerate(["a", "bc", "▁", "c", ""]):
        for letter in letters:
            frames[place, LETTERS.index(letter)] = 0.5 if letter != "c" else 0.55
    frames[4, 0] = 1.0
    scorer = CtcScorer(frames.log().log_softmax(-1)[None], torch.tensor([5]))
    ((plain,),) = ctc.beam_search(scorer, 8)
    ((fused,),) = ctc.beam_search(scorer, 8, Fusion(read_word_arpa(arpa, LETTERS, CPU), 1.0))
    texts = ["".join(LETTERS[token] for token in each.tokens) for each in (plain, fused)]
    assert texts == ["ac▁c", "ab▁c"]
    assert math.isfinite(fused.score)


def test_words_that_the_tokens_cannot_spell_are_no_language_model_for_them(arpa):
    assert read_word_arpa(arpa, ("<blank>", "<unk>", "x", "y"), CPU) is None
