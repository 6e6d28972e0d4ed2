import gzip
import itertools
import math

import pytest
import torch

from attune.decoding.ngram import read_arpa
from attune.errors import ModelError

PIECES = ("<unk>", "▁a", "▁b", "c", "▁never")

# <s> ▁a is in the file, ▁a ▁a ▁b is not, and c begins no longer n-gram.
ARPA = """\
made by hand

\\data\\
ngram 1=6
ngram 2=5
ngram 3=2

\\1-grams:
-1.5\t<unk>
-99\t<s>\t-0.3
-0.9\t</s>
-0.6\t▁a\t-0.2
-0.5\t▁b\t-0.4
-0.8\tc\t0

\\2-grams:
-0.4\t<s> ▁a\t-0.1
-0.3\t▁a ▁b\t-0.25
-0.7\t▁a </s>
-0.2\t▁b c
-1.1\t▁b ▁a\t-0.15

\\3-grams:
-0.05\t<s> ▁a ▁b
-0.35\t▁a ▁b c

\\end\\
"""


@pytest.fixture
def arpa(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA, encoding="utf-8")
    return path


def entries():
    found = {}
    for line in ARPA.splitlines():
        fields = line.split("\t")
        if len(fields) > 1:
            found[tuple(fields[1].split())] = (float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0)
    return found


def by_the_book(before, word):
    """The log-probability of a word after others, as the format defines it."""
    known, history = entries(), ("<s>", *before)[-2:]
    if word not in {"▁a", "▁b", "c"}:
        word = "<unk>"  # its words are those of the file
    price = 0.0
    while (*history, word) not in known:
        price += known.get(history, (0.0, 0.0))[1]
        history = history[1:]
    return (price + known[(*history, word)][0]) * math.log(10)


def test_every_context_gives_what_the_format_defines(arpa):
    model = read_arpa(arpa, PIECES, torch.device("cpu"))
    for length in range(4):
        for labels in itertools.product(range(1, 4), repeat=length):
            log_probs, states = model.start(1)
            for label in labels:
                log_probs, states = model.score(torch.tensor([label]), states)
            expected = [by_the_book([PIECES[label] for label in labels], piece) for piece in PIECES]
            assert log_probs[0].tolist() == pytest.approx(expected, abs=1e-5), labels


def test_rows_do_not_mix(arpa):
    model = read_arpa(arpa, PIECES, torch.device("cpu"))
    labels = torch.tensor([[1, 2, 3], [2, 1, 2], [3, 3, 1]])
    together, states = model.start(3)
    for column in labels.T:
        together, states = model.score(column, states)
    for row, expected in zip(labels, together, strict=True):
        alone, own = model.start(1)
        for label in row.split(1):
            alone, own = model.score(label, own)
        assert torch.equal(alone[0], expected)


def test_a_token_the_file_does_not_know_is_as_likely_as_the_unknown_or_the_least_likely(arpa):
    model = read_arpa(arpa, PIECES, torch.device("cpu"))
    assert model.start(1)[0][0, 4] == pytest.approx((-0.3 - 1.5) * math.log(10))
    arpa.write_text(ARPA.replace("-1.5\t<unk>\n", "").replace("ngram 1=6", "ngram 1=5"), encoding="utf-8")
    model = read_arpa(arpa, PIECES, torch.device("cpu"))
    assert model.start(1)[0][0, 4] == pytest.approx((-0.3 - 0.8) * math.log(10))  # c, not the begin's or a bigram's


def test_what_stands_for_never_in_a_file_is_not_the_least_likely_token(arpa):
    arpa.write_text(ARPA.replace("-1.5\t<unk>\n", "").replace("-0.8\tc", "-99\tc"), encoding="utf-8")
    model = read_arpa(arpa, PIECES, torch.device("cpu"))
    assert model.start(1)[0][0, 4] == pytest.approx((-0.3 - 0.6) * math.log(10))
    arpa.write_text(ARPA.replace("-1.5\t<unk>\n", "").replace("-0.8\tc", "-inf\tc"), encoding="utf-8")
    assert torch.equal(read_arpa(arpa, PIECES, torch.device("cpu")).start(1)[0], model.start(1)[0])
    arpa.write_text("\\1-grams:\n-99\t<s>\t-0.3\n\\end\\\n", encoding="utf-8")
    with pytest.raises(ModelError, match="it has no n-grams"):
        read_arpa(arpa, PIECES, torch.device("cpu"))


def test_a_model_over_other_tokens_is_refused(arpa):
    with pytest.raises(ModelError, match="'▁b' are not tokens of the model.*the model's own tokenizer"):
        read_arpa(arpa, ("<unk>", "▁a", "c"), torch.device("cpu"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no n-grams"),
        ("\\1-grams:\n-0.5 ▁a\n\\2-grams:\n-0.5 ▁a\n", "line 4: expected a number, 2 words"),
        ("\\1-grams:\nmuch\t▁a\n", "line 2: expected a number"),
        ("\\1-grams:\nnan\t▁a\n", "line 2: expected a number"),
    ],
)
def test_a_damaged_file_is_named(arpa, text, message):
    arpa.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        read_arpa(arpa, PIECES, torch.device("cpu"))
    with pytest.raises(ModelError, match="is not a valid ARPA file"):
        read_arpa(arpa.with_name("nowhere.arpa"), PIECES, torch.device("cpu"))


def test_a_compressed_file_is_answered_with_how_to_unpack_it(arpa):
    path = arpa.with_suffix(".arpa.gz")
    path.write_bytes(gzip.compress(arpa.read_bytes()))
    with pytest.raises(ModelError, match=r"lm\.arpa\.gz is compressed\. Unpack it first: gunzip"):
        read_arpa(path, PIECES, torch.device("cpu"))


def test_the_end_of_a_sentence_is_a_token_where_the_model_has_one(arpa):
    for end, pieces in ((5, PIECES), (5, (*PIECES, "</s>"))):  # beyond the pieces, or one of them
        model = read_arpa(arpa, pieces, torch.device("cpu"), end)
        log_probs, states = model.start(1)
        assert log_probs.shape == (1, 6)
        assert log_probs[0, 5] == pytest.approx((-0.3 - 0.9) * math.log(10))
        assert model.score(torch.tensor([1]), states)[0][0, 5] == pytest.approx((-0.1 - 0.7) * math.log(10))
        plain = read_arpa(arpa, PIECES, torch.device("cpu"))
        assert torch.equal(log_probs[:, :5], plain.start(1)[0])
