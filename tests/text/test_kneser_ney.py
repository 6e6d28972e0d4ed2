"""N-grams are estimated by the published formulas, and an ARPA file holds what was estimated."""

import json
import math
import random
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

from attune.decoding.ngram import read_arpa
from attune.errors import DataError
from attune.text.arpa import likelihood, write_arpa
from attune.text.kneser_ney import estimate

AN4 = next((path for parent in Path(__file__).parents if (path := parent / "shared/data/an4").is_dir()), Path())
PIECES = ("<unk>", *(f"w{number}" for number in range(100)))


def transcripts(name):
    if not (AN4 / f"{name}.jsonl").is_file():
        pytest.skip("AN4 is not here")
    return [json.loads(line)["text"].split() for line in (AN4 / f"{name}.jsonl").read_text().splitlines()]


def sentences(count=400, seed=0):
    """A text whose words repeat, some of them seldom, and depend on those before them."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        words = []
        while len(words) < 9 and rng.random() > 0.12:
            words.append(f"w{int(rng.paretovariate(0.7)) % 97 + len(words) % 3}")
        found.append(words)
    return found


class Textbook:
    """Modified Kneser–Ney with dicts of tuples: slow, and as it is written in the papers."""

    def __init__(self, text, order, prune=()):
        raw, before = Counter(), defaultdict(set)
        for words in text:
            marked = ["<s>", *words, "</s>"]
            for length in range(1, order + 1):
                for place in range(len(marked) - length + 1):
                    gram = tuple(marked[place : place + length])
                    raw[gram] += 1
                    if place:
                        before[gram].add(marked[place - 1])
        self.order = order
        self.words = {gram[0] for gram in raw if len(gram) == 1} - {"<s>"} | {"<unk>"}
        self.counts = {
            gram: count if len(gram) == order or gram[0] == "<s>" else len(before[gram])
            for gram, count in raw.items()
            if gram != ("<s>",)
        }
        cut = [*prune, *[prune[-1] if prune else 0] * order]
        self.kept = {gram for gram in self.counts if len(gram) == 1 or raw[gram] > cut[len(gram) - 1]}
        self.discounts = {length: self.discount(length) for length in range(1, order + 1)}
        self.after = defaultdict(list)
        for gram in self.counts:
            self.after[gram[:-1]].append(gram)

    def discount(self, length):
        times = Counter(count for gram, count in self.counts.items() if len(gram) == length)
        share = times[1] / (times[1] + 2 * times[2])
        return [0, *(count - (count + 1) * share * times[count + 1] / times[count] for count in (1, 2, 3))]

    def off(self, gram):
        count = self.counts[gram]
        return self.discounts[len(gram)][min(count, 3)] if gram in self.kept else count

    def prob(self, context, word):
        """p(word | context), by the recursion."""
        lower = self.prob(context[1:], word) if context else 1 / len(self.words)
        grams = self.after[context] if context or self.counts else []
        total = sum(self.counts[gram] for gram in grams)
        if not total:
            return lower
        gram = (*context, word)
        own = (self.counts[gram] - self.off(gram)) / total if gram in self.counts else 0.0
        return own + sum(self.off(each) for each in grams) / total * lower

    def log_prob(self, text):
        """Of all words and ends."""
        total = 0.0
        for words in text:
            marked = ["<s>", *(word if word in self.words else "<unk>" for word in words), "</s>"]
            for place in range(1, len(marked)):
                context = tuple(marked[max(0, place - self.order + 1) : place])
                total += math.log(self.prob(context, marked[place]))
        return total


@pytest.mark.parametrize(("order", "prune"), [(1, ()), (2, ()), (3, ()), (4, ()), (3, (0, 0, 1)), (4, (0, 1, 2))])
def test_estimates_are_those_of_the_published_formulas(order, prune):
    text, held = sentences(), sentences(60, seed=1)
    model = estimate(text, order, prune)
    assert model.guessed == ()
    found = likelihood(model, held)
    assert found.log_prob == pytest.approx(Textbook(text, order, prune).log_prob(held), rel=1e-9)


def test_transcripts_of_an4_have_the_perplexity_of_the_formulas():
    text, held = transcripts("train"), transcripts("dev")
    found = likelihood(estimate(text, 3), held)
    expected = math.exp(-Textbook(text, 3).log_prob(held) / found.words)
    assert found.perplexity == pytest.approx(expected, rel=1e-9)
    assert found.unknown == 3


@pytest.mark.parametrize("prune", [(), (0, 0, 1)])
def test_kenlm_agrees_where_it_is_installed(tmp_path, prune):
    if not shutil.which("lmplz"):
        pytest.skip("lmplz is not installed")
    text, held = sentences(), sentences(60, seed=1)
    (tmp_path / "text.txt").write_text("".join(" ".join(words) + "\n" for words in text))
    cut = ["--prune", *map(str, prune)] if prune else []
    command = ["lmplz", "-o", "3", "-S", "100M", *cut, "--text", tmp_path / "text.txt", "--arpa", tmp_path / "k.arpa"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    write_arpa(estimate(text, 3, prune), tmp_path / "ours.arpa")
    ours, theirs = (total(tmp_path / name, held) for name in ("ours.arpa", "k.arpa"))
    assert ours == pytest.approx(theirs, rel=1e-5)


def total(path, text):
    """The log-probability of a text by an ARPA file, as beams read it; ends left out."""
    model, found = read_arpa(path, PIECES, torch.device("cpu")), 0.0
    for words in text:
        log_probs, states = model.start(1)
        for word in words:
            label = PIECES.index(word)
            found += float(log_probs[0, label])
            log_probs, states = model.score(torch.tensor([label]), states)
    return found


def test_beams_read_from_the_file_what_was_estimated(tmp_path):
    text, held = sentences(), sentences(40, seed=2)
    model = estimate(text, 3)
    write_arpa(model, tmp_path / "lm.arpa")
    ends = [likelihood(model, [words]).log_prob for words in held]
    book = Textbook(text, 3)
    last = [math.log(book.prob(("<s>", *words)[-2:], "</s>")) for words in held]
    assert total(tmp_path / "lm.arpa", held) == pytest.approx(sum(ends) - sum(last), rel=1e-5)


@pytest.mark.parametrize("prune", [(), (0, 1)])
def test_the_probabilities_of_what_may_follow_add_up_to_one(tmp_path, prune):
    model = estimate(sentences(200), 3, prune)
    write_arpa(model, tmp_path / "lm.arpa")
    pieces = [word for word in model.words if word != "<s>"]
    read = read_arpa(tmp_path / "lm.arpa", pieces, torch.device("cpu"), pieces.index("</s>"))
    log_probs, states = read.start(len(pieces))
    for label in (0, 5, 9, 3):
        assert log_probs.exp().sum(1) == pytest.approx(1.0, abs=1e-5)
        log_probs, states = read.score((torch.arange(len(pieces)) + label) % len(pieces), states)


def test_a_text_too_small_for_discounts_has_those_of_kenlms_fallback():
    model = estimate([["a", "b"], ["a"]], 2)
    assert model.guessed == (1, 2) and model.discounts[0] == (0.5, 1.0, 1.5)


def test_a_discount_of_nothing_is_no_estimate_it_would_leave_nothing_for_what_was_not_seen():
    model = estimate([["a"], *[["b"]] * 2, *[["c"], ["d"]] * 3], 2)  # 2, 2 and 4 pairs of words occur 1, 2 and 3 times
    assert 2 in model.guessed
    assert math.isfinite(likelihood(model, [["b", "a"]]).log_prob)


def test_no_text_and_impossible_cuts_are_refused():
    with pytest.raises(DataError, match="No text"):
        estimate([], 3)
    with pytest.raises(DataError, match="never fall"):
        estimate([["a"]], 3, (0, 2, 1))
