"""A word model scores each word of a CTC beam where it ends, and the sentence where the audio ends."""

import itertools
import math
from collections import defaultdict

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


@pytest.mark.parametrize("unknown", ["<unk>", "<UNK>"])
def test_an_unknown_word_is_as_probable_as_the_file_says_and_so_is_what_follows_it(unknown, tmp_path):
    lines = ["-99\t<s>\t0", "-0.7\t</s>", f"-0.9\t{unknown}\t-0.2", "-0.5\tab\t-0.3", "-2.5\tc\t0"]
    grams = [f"-0.1\t{unknown} ab", f"-0.4\tab {unknown}"]
    path = tmp_path / "open.arpa"
    path.write_text("\n".join(["\\1-grams:", *lines, "\\2-grams:", *grams, "\\end\\"]) + "\n")
    lm = read_word_arpa(path, LETTERS, CPU)
    for written, expected in (
        ("ca▁ab", -0.9 - 0.1 - 0.3 - 0.7),  # <unk>, ab after it, and the end at the cost of ab's backoff
        ("ab▁ca▁c", -0.5 - 0.4 - 0.2 - 2.5 - 0.7),
    ):
        (parts,) = Fusion(lm, 1.0).parts([[LETTERS.index(letter) for letter in written]], None)
        assert parts["lm"] == pytest.approx(expected * math.log(10), abs=1e-4)


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


def paths(log_probs):
    """The log-probability of every text of a CTC lattice."""
    texts = defaultdict(float)
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        text = tuple(token for token, _ in itertools.groupby(path) if token)
        texts[text] += math.exp(sum(float(row[token]) for row, token in zip(log_probs, path, strict=True)))
    return texts


@pytest.mark.parametrize("pieces", [("<blank>", "▁", "a", "b", "c"), ("<blank>", "▁ab", "▁a", "b", "▁c")])
@pytest.mark.parametrize("weight", [0.4, 1.5])
def test_a_wide_beam_ranks_texts_as_enumerating_them_does(model, arpa, pieces, weight):
    log_probs = (2 * torch.randn(5, 5, generator=torch.Generator().manual_seed(4))).log_softmax(-1)
    lm = read_word_arpa(arpa, pieces, CPU)
    (found,) = ctc.beam_search(CtcScorer(log_probs[None], torch.tensor([5])), 2000, Fusion(lm, weight), nbest=25)

    def rank(item):
        words = "".join(pieces[token] for token in item[0]).replace("▁", " ").split()
        known = ["Bc" if word == "bc" else word for word in words]
        return math.log(item[1]) + weight * likelihood(model, [known]).log_prob

    expected = sorted(paths(log_probs).items(), key=rank, reverse=True)[:25]
    assert [each.tokens for each in found] == [tokens for tokens, _ in expected]
    assert [each.score for each in found] == pytest.approx([math.log(own) for _, own in expected], abs=1e-4)


def test_a_narrow_beam_keeps_what_begins_a_word_of_the_file(tmp_path):
    write_arpa(estimate([["ab", "c"], ["c", "ab"], ["ab"]] * 20, 1), tmp_path / "words.arpa")
    frames = torch.full((4, len(LETTERS)), 1e-3)
    for place, probabilities in enumerate([{"a": 1.0}, {"c": 0.6, "<blank>": 0.3, "b": 0.1}, {"▁": 1.0}, {"c": 1.0}]):
        for letter, probability in probabilities.items():
            frames[place, LETTERS.index(letter)] = probability
    scorer = CtcScorer(frames.log().log_softmax(-1)[None], torch.tensor([4]))
    fusion = Fusion(read_word_arpa(tmp_path / "words.arpa", LETTERS, CPU), 1.0)
    found = [ctc.beam_search(scorer, beam, fusion)[0][0] for beam in (2, 500)]
    assert ["".join(LETTERS[token] for token in each.tokens) for each in found] == ["ab▁c", "ab▁c"]


def test_words_that_the_tokens_cannot_spell_are_no_language_model_for_them(arpa):
    assert read_word_arpa(arpa, ("<blank>", "<unk>", "x", "y"), CPU) is None
