import numpy as np
import pytest

from attune.scoring.bleu import bleu_of, score_translations, sentence_counts, tokenize

WORDS = [
    "the",
    "cat,",
    "sat",
    "on",
    "3.5",
    "mats",
    "(twice)",
    "B-52",
    "don't",
    "&quot;oh&quot;",
    "A&amp;B",
    "10-11",
    "x.",
]


def random_sentences(seed, count):
    random = np.random.default_rng(seed)
    references = [" ".join(random.choice(WORDS, random.integers(1, 12))) for _ in range(count)]
    hypotheses = []
    for reference in references:
        words = [word if random.random() < 0.7 else str(random.choice(WORDS)) for word in reference.split()]
        hypotheses.append(" ".join(words[: int(random.integers(0, len(words) + 1))] or words))
    return references, hypotheses


def corpus_bleu(references, hypotheses):
    return bleu_of(sum(map(sentence_counts, references, hypotheses)))


@pytest.mark.parametrize("seed", range(12))
def test_equals_sacrebleu(seed):
    sacrebleu = pytest.importorskip("sacrebleu")
    references, hypotheses = random_sentences(seed, (1, 3, 30)[seed % 3])
    expected = sacrebleu.corpus_bleu(hypotheses, [references])
    assert corpus_bleu(references, hypotheses) == pytest.approx(expected.score, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("3.5 or 1,000", ["3.5", "or", "1,000"]),
        ("B-52 and 10-11", ["B-52", "and", "10", "-", "11"]),
        ("don't (stop).", ["don't", "(", "stop", ")", "."]),
        ("&quot;A&amp;B&quot; &lt;x&gt;", ['"', "A", "&", "B", '"', "<", "x", ">"]),
    ],
)
def test_tokens_are_those_of_13a(text, tokens):
    assert tokenize(text) == tokens


def test_known_values():
    """By hand: precisions 5/6, 3/5, 1/4 and, smoothed, 1/6; no brevity penalty."""
    found = corpus_bleu(["the cat sat on the mat"], ["the cat sits on the mat"])
    assert found == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25)
    assert corpus_bleu(["a b c d e"], ["a b c d e"]) == pytest.approx(100)
    assert corpus_bleu(["a b c d e f g h"], ["a b c d"]) == pytest.approx(100 * np.exp(1 - 8 / 4))
    assert corpus_bleu(["a b c d"], ["x y z w"]) == 0


def test_the_interval_contains_the_score():
    references, hypotheses = random_sentences(3, 40)
    score = score_translations(references, hypotheses, [str(row) for row in range(40)])
    assert score.low < score.value < score.high
    assert np.isnan(score_translations([], [], []).value)
