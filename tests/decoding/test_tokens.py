import itertools
import math
from dataclasses import replace

import pytest
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.generation import GenerationMixin

from attune.decoding import _token_search
from attune.decoding._phrase_tree import TokenTexts
from attune.decoding.fusion import Fusion
from attune.decoding.phrases import PhraseBook
from attune.decoding.settings import LengthNorm
from attune.decoding.tokens import beam_search, greedy, sample
from attune.seeds import derive
from attune.text.filters import suppress
from attune.types import Hypothesis

from toy.language_models import Bigrams, random_bigrams, write_unigrams

END, START = 0, 1


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.inference_mode():
        yield


class GruModel(torch.nn.Module):
    """A random decoder: its distribution depends on all tokens before, and on the utterance."""

    def __init__(self, vocabulary, seed=0, sharpness=6.0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed = torch.nn.Embedding(vocabulary, 16)
            self.gru = torch.nn.GRU(16, 24, num_layers=2, batch_first=True)
            self.output = torch.nn.Linear(24, vocabulary)
        self.output.bias[END] += 0.2  # as it is, few utterances would end
        self.sharpness = sharpness

    def forward(self, tokens, state):
        frames, state = self.gru(self.embed(tokens), state)
        return (self.sharpness * self.output(frames)).log_softmax(-1), state


class GruScorer:
    device = torch.device("cpu")
    end = END

    def __init__(self, model, utterances, prefixes=None, limits=None, filters=()):
        self.model, self.filters = model, filters
        self.prefixes = prefixes or [(START,)] * len(utterances)
        self.limits = limits or [12] * len(utterances)
        self.utterances = utterances
        self.state = utterances.repeat(2, 1, 1)  # (layers, R, width)
        self.owners = torch.arange(len(utterances))
        self.given = 0
        self.row_counts = []

    def advance(self, tokens):
        log_probs, self.state = self.model(tokens, self.state)
        self.given += tokens.shape[1]
        self.row_counts.append(len(tokens))
        return log_probs[:, -1]

    def select(self, rows):
        before, self.owners = self.owners, self.owners[rows]
        # What a scorer may rely on, so that it need not move what only depends on the audio.
        assert len(self.owners) != len(before) or torch.equal(self.owners, before)
        assert len(set(self.owners.unique_consecutive(return_counts=True)[1].tolist())) == 1
        self.state = self.state[:, rows]


def utterances(count, seed=0):
    return 2 * torch.randn(count, 24, generator=torch.Generator().manual_seed(seed))


def mixed(model, count=9, filters=()):
    """Utterances whose prefixes and limits have nothing in common."""
    prefixes = [(START, 2, 3, 4)[: 1 + row % 4] for row in range(count)]
    return GruScorer(model, utterances(count), prefixes, [3 + 5 * row % 14 for row in range(count)], filters)


def only(scorer, rows):
    prefixes, limits = [scorer.prefixes[row] for row in rows], [scorer.limits[row] for row in rows]
    return GruScorer(scorer.model, scorer.utterances[list(rows)], prefixes, limits)


def log_probs_after(scorer, row, emitted):
    """All at once from the beginning: no cache, no neighbours."""
    log_probs, _ = scorer.model(
        torch.tensor([[*scorer.prefixes[row], *emitted]]), scorer.utterances[row].repeat(2, 1, 1)
    )
    return log_probs[0, -1]


def naive_greedy(scorer, row):
    emitted, score = [], 0.0
    while True:
        log_probs = log_probs_after(scorer, row, emitted)
        token = END if len(emitted) == scorer.limits[row] else int(log_probs.argmax())
        score += float(log_probs[token])
        if token == END:
            return Hypothesis(tuple(emitted), score)
        emitted.append(token)


def every_hypothesis(scorer, row, length_power, offset=0.0):
    """All token sequences within the limit, best first."""
    words = [token for token in range(scorer.model.output.out_features) if token != END]
    found = []
    for length in range(scorer.limits[row] + 1):
        for emitted in itertools.product(words, repeat=length):
            steps = range(length + 1)
            score = sum(float(log_probs_after(scorer, row, emitted[:step])[(*emitted, END)[step]]) for step in steps)
            found.append(Hypothesis(emitted, score))
    return sorted(found, key=lambda each: -each.score / (offset + len(each.tokens) + 1) ** length_power)


def assert_same(found, expected):
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-5)


def best(scorer, beam, length_power=1.0):
    return [found[0] for found in beam_search(scorer, beam, LengthNorm(length_power))]


def sampled(scorer):
    return sample(scorer, 0.8, [derive(17, "sample", str(state)) for state in scorer.utterances])


SEARCHES = [greedy, sampled, lambda scorer: best(scorer, 3), lambda scorer: best(scorer, 4, 0.0)]


def test_greedy_takes_the_best_token_each_time_up_to_the_end_or_the_limit():
    scorer = mixed(GruModel(vocabulary=12))
    expected = [naive_greedy(scorer, row) for row in range(9)]
    assert_same(greedy(scorer), expected)
    lengths = [len(each.tokens) for each in expected]
    at_limit = sum(length == limit for length, limit in zip(lengths, scorer.limits, strict=True))
    assert 0 < at_limit < 9 and len(set(lengths)) > 3  # both ways to end are seen


@pytest.mark.parametrize("find", SEARCHES)
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_and_their_order_change_nothing(find, seed):
    model = GruModel(vocabulary=12, seed=seed)
    together = find(mixed(model))
    assert_same(find(only(mixed(model), range(9)[::-1])), together[::-1])
    assert_same([find(only(mixed(model), [row]))[0] for row in range(9)], together)
    assert_same([*find(only(mixed(model), range(5))), *find(only(mixed(model), range(5, 9)))], together)


@pytest.mark.parametrize("find", SEARCHES)
def test_how_often_the_device_is_asked_changes_nothing(find, monkeypatch):
    model = GruModel(vocabulary=12)
    expected = find(mixed(model))
    monkeypatch.setattr(_token_search.HypothesisBuffer, "is_sync_step", lambda buffer: buffer.position % 5 == 0)
    assert_same(find(mixed(model)), expected)


def test_rows_are_pruned_when_they_have_ended():
    scorer = mixed(GruModel(vocabulary=12))
    greedy(scorer)
    assert scorer.row_counts[0] == 9 and scorer.row_counts[-1] <= 3
    assert scorer.row_counts == sorted(scorer.row_counts, reverse=True)


@pytest.mark.parametrize("find", SEARCHES)
def test_no_result_and_no_cache_is_longer_than_the_limits(find):
    scorer = mixed(GruModel(vocabulary=12), filters=(suppress(torch.tensor([0])),))  # it would never end
    found = find(scorer)
    assert [len(each.tokens) for each in found] == scorer.limits
    assert all(math.isfinite(each.score) for each in found)
    assert scorer.given == max(len(p) + limit for p, limit in zip(scorer.prefixes, scorer.limits, strict=True))


@pytest.mark.parametrize("find", SEARCHES)
def test_a_limit_of_nothing_leaves_the_end(find):
    scorer = GruScorer(GruModel(vocabulary=5), utterances(1), limits=[0])
    (found,) = find(scorer)
    assert found.tokens == ()
    assert found.score == pytest.approx(float(log_probs_after(scorer, 0, ())[END]), abs=1e-5)


@pytest.mark.parametrize("find", SEARCHES)
def test_what_is_suppressed_is_never_emitted(find):
    model = GruModel(vocabulary=8)
    usual = {token for each in find(mixed(model)) for token in each.tokens}
    unnbest = sorted(usual)[:3]
    found = find(mixed(model, filters=(suppress(torch.tensor(unnbest)),)))
    assert not {token for each in found for token in each.tokens} & set(unnbest)


def filtered_log_prob(scorer, row, emitted):
    """The log-probability among the allowed tokens; at the limit there was no choice but the end."""
    total, tokens = 0.0, (*emitted, END)[: scorer.limits[row]]
    for step, token in enumerate(tokens):
        (allowed,) = scorer.filters[0](log_probs_after(scorer, row, emitted[:step])[None], None, None)
        total += float(allowed.log_softmax(-1)[token])
    return total


@pytest.mark.parametrize("find", SEARCHES)
def test_how_sure_it_was_is_measured_among_what_the_filters_allow(find):
    scorer = mixed(GruModel(vocabulary=12, sharpness=2.0), filters=(suppress(torch.tensor([2, 3, 4, 5])),))
    found = find(scorer)
    expected = [filtered_log_prob(scorer, row, each.tokens) for row, each in enumerate(found)]
    assert [each.filtered_log_prob for each in found] == pytest.approx(expected, abs=1e-4)
    assert all(each.filtered_log_prob > each.score for each in found)
    assert {len(each.tokens) == limit for each, limit in zip(found, scorer.limits, strict=True)} == {True, False}


@pytest.mark.parametrize(("length_power", "offset"), [(0.0, 0.0), (0.6, 0.0), (0.6, 5.0), (1.0, 0.0)])
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_what_enumerating_everything_finds(seed, length_power, offset):
    model = GruModel(vocabulary=4, seed=seed, sharpness=2.0)
    scorer = GruScorer(model, utterances(2, seed), [(START,), (START, 2, 3)], [4, 3])
    everything = [every_hypothesis(scorer, row, length_power, offset) for row in range(2)]
    found = beam_search(scorer, 200, LengthNorm(length_power, offset), nbest=5)
    assert_same(found[0], everything[0][:5])
    assert_same(found[1], everything[1][:5])


def textbook_beam_search(scorer, row, beam, length_power, nbest):
    going, ended = [((), 0.0)], []
    for length in range(1, scorer.limits[row] + 2):
        continued = []
        for emitted, score in going:
            log_probs = log_probs_after(scorer, row, emitted)
            allowed = [END] if len(emitted) == scorer.limits[row] else range(len(log_probs))
            continued += [((*emitted, token), score + float(log_probs[token])) for token in allowed]
        continued.sort(key=lambda item: -item[1])
        ended += [item for item in continued[:beam] if item[0][-1] == END]
        ended = sorted(ended, key=lambda item: -item[1] / len(item[0]) ** length_power)[:beam]
        going = [item for item in continued if item[0][-1] != END][:beam]
        needed = nbest if length_power == 0 else beam
        values = [score / len(emitted) ** length_power for emitted, score in ended]
        if not going or (len(ended) >= needed and values[needed - 1] >= going[0][1] / length**length_power):
            break
    return [Hypothesis(emitted[:-1], score) for emitted, score in ended[:nbest]]


@pytest.mark.parametrize("length_power", [0.0, 1.0])
@pytest.mark.parametrize("beam", [2, 3, 5])
def test_a_narrow_beam_is_the_textbook_one(beam, length_power):
    scorer = mixed(GruModel(vocabulary=6, sharpness=2.0), count=12)
    expected = [textbook_beam_search(scorer, row, beam, length_power, nbest=2) for row in range(12)]
    for found, each in zip(beam_search(scorer, beam, LengthNorm(length_power), nbest=2), expected, strict=True):
        assert_same(found, each)


@pytest.mark.parametrize("length_power", [0.0, 1.0])
def test_an_utterance_is_over_once_it_cannot_be_beaten_or_is_unlikely_to_be(length_power):
    scorer = GruScorer(GruModel(vocabulary=4), utterances(3), limits=[400] * 3)
    best(scorer, 4, length_power)
    assert scorer.given < 60


@pytest.mark.parametrize("length_power", [0.0, 1.0])
def test_a_beam_of_one_is_greedy(length_power):
    model = GruModel(vocabulary=12)
    assert_same(best(mixed(model), 1, length_power), greedy(mixed(model)))


def test_a_beam_finds_more_probable_hypotheses_than_greedy():
    model = GruModel(vocabulary=12, sharpness=3.0)
    pairs = list(zip(best(mixed(model, 40), 8, 0.0), greedy(mixed(model, 40)), strict=True))
    assert all(beam.score >= line.score - 1e-5 for beam, line in pairs)
    assert sum(beam.score > line.score + 0.1 for beam, line in pairs) > 10


def test_an_utterance_has_as_many_distinct_hypotheses_as_nbest_best_first():
    for found in beam_search(mixed(GruModel(vocabulary=12), 20), beam=5, nbest=4):
        values = [each.score / (len(each.tokens) + 1) for each in found]
        assert values == sorted(values, reverse=True)
        assert len({each.tokens for each in found}) == len(found) == 4


def test_samples_follow_the_models_probabilities_at_the_temperature():
    model, same = GruModel(vocabulary=6, sharpness=2.0), utterances(1).expand(4000, -1)
    scorer = GruScorer(model, same, limits=[1] * 4000, filters=(suppress(torch.tensor([2])),))
    found = sample(scorer, 0.7, [derive(1, "sample", row) for row in range(4000)])
    shares = (
        torch.bincount(torch.tensor([each.tokens[0] if each.tokens else END for each in found]), minlength=6) / 4000
    )
    allowed = log_probs_after(scorer, 0, ()).index_fill(0, torch.tensor([2]), -torch.inf)
    assert shares.tolist() == pytest.approx((allowed / 0.7).softmax(-1).tolist(), abs=0.03)
    assert shares[2] == 0


LM = random_bigrams(12, seed=5)


def fused(hypothesis, lm, weight, length_power):
    """What a hypothesis is ranked by: both models' log-probabilities of its tokens and the end after them."""
    tokens = (*hypothesis.tokens, END)
    known = [token for token in tokens if token < lm.log_probs.shape[1]]  # others cost nothing
    return (hypothesis.score + weight * lm.log_prob(known)) / len(tokens) ** length_power


@pytest.mark.parametrize("length_power", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_with_a_language_model_a_wide_beam_finds_what_enumerating_everything_finds(seed, length_power):
    scorer = GruScorer(
        GruModel(vocabulary=4, seed=seed, sharpness=2.0), utterances(2, seed), [(START,), (START, 2, 3)], [4, 3]
    )
    lm = random_bigrams(4, seed)
    expected = [
        sorted(every_hypothesis(scorer, row, 0.0), key=lambda each: -fused(each, lm, 0.8, length_power))[:5]
        for row in range(2)
    ]
    found = beam_search(scorer, 200, LengthNorm(length_power), 5, Fusion(lm, 0.8))
    assert_same(found[0], expected[0])
    assert_same(found[1], expected[1])
    plain = beam_search(only(scorer, range(2)), 200, LengthNorm(length_power), 5)
    assert [[each.tokens for each in row] for row in found] != [[each.tokens for each in row] for row in plain]


def test_with_a_language_model_neighbours_and_rows_that_leave_change_nothing():
    def find(scorer):
        return [each for row in beam_search(scorer, 3, nbest=2, fusion=Fusion(LM, 0.5)) for each in row]

    model = GruModel(vocabulary=12)
    together, alone = find(mixed(model)), [find(only(mixed(model), [row])) for row in range(9)]
    assert_same(together, [each for row in alone for each in row])
    assert_same(find(only(mixed(model), range(9)[::-1])), [each for row in alone[::-1] for each in row])
    assert [each.tokens for each in together[::2]] != [each.tokens for each in best(mixed(model), 3)]


def test_a_language_model_without_weight_changes_nothing():
    model = GruModel(vocabulary=12)
    plain, weightless = beam_search(mixed(model), 4), beam_search(mixed(model), 4, fusion=Fusion(LM, 0.0))
    assert [[replace(each, parts=()) for each in found] for found in weightless] == plain


def test_a_temperature_flattens_the_language_model_from_the_first_token_on():
    flatter = Bigrams((LM.log_probs / 2.5).log_softmax(-1))
    hot, expected = (
        beam_search(mixed(GruModel(vocabulary=12)), 4, fusion=fusion)
        for fusion in (Fusion(LM, 0.7, temperature=2.5), Fusion(flatter, 0.7))
    )
    for found, wanted in zip(hot, expected, strict=True):
        assert_same(found, wanted)
    cold = beam_search(mixed(GruModel(vocabulary=12)), 4, fusion=Fusion(LM, 0.7))
    assert [each[0].tokens for each in hot] != [each[0].tokens for each in cold]


def test_tokens_beyond_the_language_model_cost_nothing_and_leave_its_state():
    scorer = GruScorer(GruModel(vocabulary=5, sharpness=2.0), utterances(1), limits=[3])
    lm = random_bigrams(4)  # token 4 is none of its own
    expected = sorted(every_hypothesis(scorer, 0, 0.0), key=lambda each: -fused(each, lm, 2.0, 0.0))
    (found,) = beam_search(scorer, 300, LengthNorm(0.0), 10, Fusion(lm, 2.0))
    assert_same(found, expected[:10])
    assert any(4 in each.tokens[:-1] for each in found)


class FirstLetter:
    """Token 3 ("b") with probability 0.5 or 2 ("a") with 0.4, and then the end."""

    device = torch.device("cpu")
    end, prefixes, limits, filters = 0, ((1,),), (3,), ()
    table = torch.tensor([[1.0, 0, 0, 0], [0.1, 0, 0.4, 0.5], [0.8, 0, 0.1, 0.1], [0.9, 0, 0.05, 0.05]]).log()

    def advance(self, tokens):
        return self.table[tokens[:, -1]]

    def select(self, rows):
        pass


def test_an_arpa_model_decides_as_computed_by_hand(tmp_path):
    # By itself b, 0.5 × 0.9. With p_lm(a) = 0.6, p_lm(b) = 0.1 and p_lm(</s>) = 0.3 at weight 1, a has
    # 0.4 × 0.8 × 0.6 × 0.3 = 0.0576, b 0.5 × 0.9 × 0.1 × 0.3 = 0.0135, and nothing 0.1 × 0.3 = 0.03.
    lm = write_unigrams(tmp_path / "lm.arpa", {"a": 0.6, "b": 0.1, "</s>": 0.3}, ("", "<s>", "a", "b"), end=0)
    assert best(FirstLetter(), 4, 0.0)[0].tokens == (3,)
    (found,) = beam_search(FirstLetter(), 4, LengthNorm(0.0), 3, Fusion(lm, 1.0))
    assert [each.tokens for each in found] == [(2,), (), (3,)]
    assert [each.score for each in found] == pytest.approx([math.log(0.32), math.log(0.1), math.log(0.45)])
    # An end that the language model finds unlikely: with 0.01, 0.001 for nothing against 0.00192 for a, 0.00176 for b.
    lm = write_unigrams(tmp_path / "lm.arpa", {"a": 0.6, "b": 0.39, "</s>": 0.01}, ("", "<s>", "a", "b"), end=0)
    (found,) = beam_search(FirstLetter(), 20, LengthNorm(0.0), 3, Fusion(lm, 1.0))
    assert [each.tokens for each in found] == [(2,), (3,), ()]


def test_confidence_with_a_language_model_is_still_the_models_own():
    def find(scorer):
        return [row[0] for row in beam_search(scorer, 3, fusion=Fusion(LM, 0.5))]

    scorer = mixed(GruModel(vocabulary=12, sharpness=2.0), filters=(suppress(torch.tensor([2, 3, 4, 5])),))
    found = find(scorer)
    expected = [filtered_log_prob(scorer, row, each.tokens) for row, each in enumerate(found)]
    assert [each.filtered_log_prob for each in found] == pytest.approx(expected, abs=1e-4)


WHISPER_END = 9


@pytest.fixture(scope="module")
def whisper():
    config = WhisperConfig(
        vocab_size=60,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=20,
        max_target_positions=48,
        pad_token_id=WHISPER_END,
        bos_token_id=WHISPER_END,
        eos_token_id=WHISPER_END,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    with torch.random.fork_rng():
        model = WhisperForConditionalGeneration(config).eval()
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.data.normal_(0, 0.3, generator=generator)
    model.model.decoder.layer_norm.weight.data.fill_(2.0)  # sure enough of itself to end
    return model


class WhisperScorer:
    device = torch.device("cpu")
    end = WHISPER_END
    filters = ()

    def __init__(self, model, features, limit=30):
        self.model = model
        self.prefixes = [(51, 52, 53)] * len(features)
        self.limits = [limit] * len(features)
        self.encoded = model.model.encoder(features).last_hidden_state
        self.cache = None

    def advance(self, tokens):
        answer = self.model(
            encoder_outputs=(self.encoded,), decoder_input_ids=tokens, past_key_values=self.cache, use_cache=True
        )
        self.cache = answer.past_key_values
        return answer.logits[:, -1].float().log_softmax(-1)

    def select(self, rows):
        self.encoded = self.encoded[rows]
        self.cache.reorder_cache(rows)


@pytest.mark.parametrize("beams", [1, 4])
def test_a_whisper_emits_what_transformers_makes_it_emit(whisper, beams):
    features = 2 * torch.randn(8, 8, 40, generator=torch.Generator().manual_seed(7))
    scorer = WhisperScorer(whisper, features)
    found = greedy(scorer) if beams == 1 else best(scorer, beams)
    expected = GenerationMixin.generate(
        whisper,
        input_features=features,
        decoder_input_ids=torch.tensor([[51, 52, 53]] * 8),
        max_new_tokens=30,
        num_beams=beams,
        do_sample=False,
        length_penalty=1.0,
        early_stopping=False,
    )
    rows = [[*row[3:].tolist(), WHISPER_END] for row in expected]
    assert [each.tokens for each in found] == [tuple(row[: row.index(WHISPER_END)]) for row in rows]
    assert len({len(each.tokens) for each in found}) > 3


def boosted(pieces, phrases, own):
    book = PhraseBook(TokenTexts(pieces), 1.5, phrases)
    return Fusion(None, phrases=book.booster(own, torch.device("cpu")))


@pytest.mark.parametrize("length_power", [0.0, 1.0])
def test_texts_gain_no_more_than_their_phrases_and_without_any_nothing(length_power):
    model = GruModel(vocabulary=5, seed=1, sharpness=2.0)
    scorer = GruScorer(model, utterances(2, 1), limits=[4, 3], filters=[suppress(torch.tensor([1]))])
    pieces = ("</s>", "<s>", "▁a", "b", "▁c")
    fusion = boosted(pieces, ("ab",), (("c ab",), ()))
    every = [every_hypothesis(scorer, row, length_power) for row in range(2)]
    for row, found in enumerate(beam_search(scorer, 300, LengthNorm(length_power), 300, fusion)):
        phrases, scores = (("ab", "c ab"), ("ab",))[row], {each.tokens: each.score for each in every[row]}
        gains = [dict(each.parts)["fused"] for each in found]
        texts = ["".join(pieces[token] for token in each.tokens).replace("▁", " ") for each in found]
        most = [sum(1.5 * len(one.replace(" ", "")) for one in phrases if f" {one} " in f" {text} ") for text in texts]
        assert all(-1e-4 <= gain <= limit + 1e-4 for gain, limit in zip(gains, most, strict=True))
        assert max(gains) > 0 and min(most) == 0
        assert [each.score for each in found] == pytest.approx([scores[each.tokens] for each in found], abs=1e-4)
        ranks = [
            (each.score + gain) / (len(each.tokens) + 1) ** length_power
            for each, gain in zip(found, gains, strict=True)
        ]
        assert ranks == pytest.approx(sorted(ranks, reverse=True), abs=1e-4)


def test_a_phrase_makes_no_text_impossible():
    model = GruModel(vocabulary=5, seed=1, sharpness=9.0)
    pieces, sizes = ("</s>", "<s>", "▁a", "b", "▁c"), (300, LengthNorm(0.0), 300)

    def found(fusion):
        scorer = GruScorer(model, utterances(1, 1), limits=[3], filters=[suppress(torch.tensor([1]))])
        return {each.tokens: each.score for each in beam_search(scorer, *sizes, fusion)[0]}

    plain = found(None)
    assert len(plain) == 40
    assert found(boosted(pieces, ("ab", "c"), ((),))) == pytest.approx(plain, abs=1e-4)


def test_with_phrases_of_their_own_neighbours_change_nothing():
    model = GruModel(vocabulary=5, seed=2, sharpness=3.0)
    scorer = GruScorer(model, utterances(3, 2), limits=[9, 5, 12])
    pieces, own = ("</s>", "<s>", "▁a", "b", "▁c"), (("ab",), (), ("c", "ab c"))
    together = beam_search(scorer, 4, LengthNorm(0.5), 2, boosted(pieces, (), own))
    for row in range(3):
        scorer = GruScorer(model, utterances(3, 2)[[row]], limits=[[9, 5, 12][row]])
        alone = beam_search(scorer, 4, LengthNorm(0.5), 2, None if row == 1 else boosted(pieces, (), (own[row],)))
        assert_same(together[row], alone[0])
