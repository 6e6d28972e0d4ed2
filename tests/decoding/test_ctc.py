import itertools
import math
import time
from collections import defaultdict

import pytest
import torch

from attune.decoding import ctc
from attune.decoding.ctc import greedy
from attune.decoding.fusion import Fusion
from attune.types import CtcScorer

from toy.language_models import random_bigrams, write_unigrams


def beam_search(scorer, beam, fusion=None):
    """The best of each utterance."""
    return [best for (best,) in ctc.beam_search(scorer, beam, fusion)]


def random_scorer(frames, vocabulary, rows=1, seed=0, sharpness=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(rows, frames, vocabulary, generator=generator)
    lengths = torch.randint(1, frames + 1, (rows,), generator=generator) if rows > 1 else torch.tensor([frames])
    return CtcScorer(logits.log_softmax(-1), lengths)


def collapse(alignment):
    return tuple(token for token, _ in itertools.groupby(alignment) if token)


def all_sequences(log_probs):
    """Every token sequence with its probability, by adding up every alignment there is."""
    found = defaultdict(float)
    frames, vocabulary = log_probs.shape
    for alignment in itertools.product(range(vocabulary), repeat=frames):
        found[collapse(alignment)] += math.exp(sum(float(log_probs[f, token]) for f, token in enumerate(alignment)))
    return found


def textbook_beam_search(log_probs, beam):
    """Prefixes as tuples in a dict, probabilities as they are: slow and plain."""
    kept = {(): (1.0, 0.0)}  # prefix → probability of ending in a blank, in its last token
    for frame in log_probs.exp().tolist():
        found = defaultdict(lambda: [0.0, 0.0])
        for prefix, (blank, token) in kept.items():
            found[prefix][0] += (blank + token) * frame[0]
            for each, probability in enumerate(frame[1:], start=1):
                if prefix and each == prefix[-1]:
                    found[prefix][1] += token * probability
                    found[(*prefix, each)][1] += blank * probability
                else:
                    found[(*prefix, each)][1] += (blank + token) * probability
        kept = dict(sorted(found.items(), key=lambda item: -sum(item[1]))[:beam])
    prefix, probabilities = next(iter(kept.items()))
    return prefix, math.log(sum(probabilities))


def aligned(*alignment, vocabulary=4):
    return CtcScorer(
        torch.eye(vocabulary)[list(alignment)].mul(9).log_softmax(-1)[None], torch.tensor([len(alignment)])
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_wide_beam_finds_what_enumerating_every_alignment_finds(seed):
    scorer = random_scorer(frames=5, vocabulary=4, seed=seed)
    (found,) = beam_search(scorer, beam=1000)
    tokens, probability = max(all_sequences(scorer.log_probs[0]).items(), key=lambda item: item[1])
    assert found.tokens == tokens
    assert found.score == pytest.approx(math.log(probability), abs=1e-6)


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_a_narrow_beam_is_the_textbook_one(beam):
    # Narrow beams drop prefixes, keep their children, and find the dropped ones again.
    for seed in range(10):
        scorer = random_scorer(frames=16, vocabulary=3, seed=seed, sharpness=1.0)
        (found,) = beam_search(scorer, beam)
        tokens, score = textbook_beam_search(scorer.log_probs[0].double(), beam)
        assert found.tokens == tokens
        assert found.score == pytest.approx(score, abs=1e-9)


def test_the_widest_beam_takes_seconds_and_neighbours_change_nothing():
    scorer = random_scorer(frames=20, vocabulary=30, rows=16)  # more than are searched at once
    begun = time.process_time()
    together = beam_search(scorer, beam=10_000)
    assert time.process_time() - begun < 10
    assert together[3:4] == beam_search(CtcScorer(scorer.log_probs[3:4], scorer.lengths[3:4]), beam=10_000)


def test_the_beam_sums_alignments_that_greedy_takes_one_of():
    # Blank is the best single token of both frames, and "1" is more probable by its three alignments together.
    scorer = CtcScorer(torch.tensor([[[0.6, 0.4], [0.6, 0.4]]]).log(), torch.tensor([2]))
    assert greedy(scorer)[0].tokens == ()
    (found,) = beam_search(scorer, beam=4)
    assert found.tokens == (1,)
    assert found.score == pytest.approx(math.log(0.64), abs=1e-6)


@pytest.mark.parametrize("find", [greedy, lambda scorer: beam_search(scorer, 4)])
def test_repeats_are_one_token_and_a_blank_parts_two(find):
    assert find(aligned(0, 1, 1, 0, 1, 2, 2, 0))[0].tokens == (1, 1, 2)
    assert find(aligned(0, 0, 0))[0].tokens == ()


def test_greedy_scores_its_own_alignment():
    scorer = random_scorer(frames=6, vocabulary=4)
    assert greedy(scorer)[0].score == pytest.approx(float(scorer.log_probs.max(-1).values.sum()))


@pytest.mark.parametrize("find", [greedy, lambda scorer: beam_search(scorer, 4)])
def test_batch_order_and_neighbours_and_padding_change_nothing(find):
    scorer = random_scorer(frames=12, vocabulary=5, rows=6)
    together = find(scorer)
    backwards = find(CtcScorer(scorer.log_probs.flip(0), scorer.lengths.flip(0)))
    rows = zip(scorer.log_probs, scorer.lengths, strict=True)
    alone = [find(CtcScorer(row[None, :length], length[None]))[0] for row, length in rows]
    assert together == backwards[::-1] == alone


@pytest.mark.parametrize("weight", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_with_a_language_model_a_wide_beam_finds_what_enumerating_every_alignment_finds(seed, weight):
    scorer, lm = random_scorer(frames=5, vocabulary=4, seed=seed), random_bigrams(4, seed)
    totals = all_sequences(scorer.log_probs[0])
    best = max(totals, key=lambda tokens: math.log(totals[tokens]) + weight * lm.log_prob(tokens))
    (found,) = beam_search(scorer, 1000, Fusion(lm, weight))
    assert found.tokens == best
    assert found.score == pytest.approx(math.log(totals[best]), abs=1e-6)  # of the acoustic model alone


def test_a_language_model_changes_what_is_found():
    scorers = [random_scorer(frames=5, vocabulary=4, seed=seed) for seed in range(6)]
    changed = [beam_search(each, 1000, Fusion(random_bigrams(4), 1.0)) != beam_search(each, 1000) for each in scorers]
    assert sum(changed) >= 3


def textbook_fused_search(log_probs, beam, lm, weight):
    """As above, and prefixes are kept by what the language model adds to them."""
    kept = {(): (1.0, 0.0)}
    for frame in log_probs.exp().tolist():
        found = defaultdict(lambda: [0.0, 0.0])
        for prefix, (blank, token) in kept.items():
            found[prefix][0] += (blank + token) * frame[0]
            for each, probability in enumerate(frame[1:], start=1):
                if prefix and each == prefix[-1]:
                    found[prefix][1] += token * probability
                    found[(*prefix, each)][1] += blank * probability
                else:
                    found[(*prefix, each)][1] += (blank + token) * probability
        ranked = sorted(found.items(), key=lambda item: -sum(item[1]) * math.exp(weight * lm.log_prob(item[0])))
        kept = dict(ranked[:beam])
    prefix, probabilities = next(iter(kept.items()))
    return prefix, math.log(sum(probabilities))


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_a_narrow_beam_with_a_language_model_is_the_textbook_one(beam):
    for seed in range(10):
        scorer, lm = random_scorer(frames=16, vocabulary=3, seed=seed, sharpness=1.0), random_bigrams(3, seed)
        (found,) = beam_search(scorer, beam, Fusion(lm, 0.5))
        tokens, score = textbook_fused_search(scorer.log_probs[0].double(), beam, lm, 0.5)
        assert found.tokens == tokens
        assert found.score == pytest.approx(score, abs=1e-9)


def test_a_character_language_model_decides_between_what_sounds_alike(tmp_path):
    # One frame, a 0.5 and b 0.4: with p_lm(a) = 0.1 and p_lm(b) = 0.9 the other one wins from weight 0.1015… on,
    # where 0.5 × 0.1 ** weight = 0.4 × 0.9 ** weight.
    scorer = CtcScorer(torch.tensor([[[0.1, 1e-9, 0.5, 0.4]]]).log(), torch.tensor([1]))
    lm = write_unigrams(tmp_path / "lm.arpa", {"a": 0.1, "b": 0.9}, ("<blank>", "<unk>", "a", "b"))
    assert beam_search(scorer, 4, Fusion(lm, 0.10))[0].tokens == (2,)
    (found,) = beam_search(scorer, 4, Fusion(lm, 0.11))
    assert found.tokens == (3,) and found.score == pytest.approx(math.log(0.4))


def test_with_a_language_model_neighbours_change_nothing():
    scorer, fusion = random_scorer(frames=12, vocabulary=5, rows=6), Fusion(random_bigrams(5), 0.7)
    rows = zip(scorer.log_probs, scorer.lengths, strict=True)
    alone = [beam_search(CtcScorer(row[None, :length], length[None]), 4, fusion)[0] for row, length in rows]
    assert beam_search(scorer, 4, fusion) == alone != beam_search(scorer, 4)


@pytest.mark.parametrize(("vocabulary", "count"), [(400, 5), (403, 17), (90, 5)])
def test_the_best_tokens_of_a_large_vocabulary_are_those_of_a_full_sort(vocabulary, count):
    log_probs = torch.randn(50, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    expected = log_probs.argsort(1, descending=True)[:, :count].sort().values
    assert torch.equal(ctc._best_tokens(log_probs, count), expected)
