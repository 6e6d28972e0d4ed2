import pytest
import torch
from transformers import GenerationConfig
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from attune.text.filters import pair_timestamps, suppress, suppress_first

PREFIX, END, NO_TIMES, FIRST, VOCABULARY = (8, 9), 10, 11, 12, 24  # text is 0 to 7
LATEST_START = 3


def log_probs(rows=1, seed=0, against_times=0.0):
    scores = torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed))
    scores[:, :FIRST] += against_times
    return scores.log_softmax(-1)


def allowed(emitted, scores=None, prefix=PREFIX):
    """The tokens that the timestamp rules let follow."""
    rule = pair_timestamps(FIRST, END, LATEST_START)
    tokens = torch.tensor([[*prefix, *emitted]])
    answer = rule(log_probs(against_times=9) if scores is None else scores, tokens, torch.tensor([len(prefix)]))
    return set(answer[0].isfinite().nonzero()[:, 0].tolist())


def times(start, stop=VOCABULARY):
    return set(range(start, stop))


EVERYTHING_ELSE = set(range(FIRST))


def test_suppressed_tokens_are_forbidden_and_the_others_keep_their_scores():
    scores, unwanted = log_probs(rows=3), torch.tensor([2, 5])
    answer = suppress(unwanted)(scores, torch.zeros(3, 4), torch.zeros(3))
    assert (answer[:, [2, 5]] == -torch.inf).all()
    kept = [token for token in range(VOCABULARY) if token not in (2, 5)]
    assert torch.equal(answer[:, kept], scores[:, kept])


def test_some_tokens_are_only_forbidden_where_a_rows_own_result_begins():
    scores = log_probs(rows=3)
    answer = suppress_first(torch.tensor([2, 5]))(scores, torch.zeros(3, 4), torch.tensor([3, 4, 5]))
    assert answer[1, 2] == answer[1, 5] == -torch.inf
    assert torch.equal(answer[[0, 2]], scores[[0, 2]])
    assert answer.isfinite().sum() == 3 * VOCABULARY - 2


def test_a_result_begins_with_an_early_time():
    assert allowed([]) == times(FIRST, FIRST + LATEST_START + 1)


def test_text_follows_the_first_time():
    assert allowed([FIRST]) == EVERYTHING_ELSE


def test_text_goes_on_or_ends_at_a_later_time():
    assert allowed([FIRST + 2, 5]) == EVERYTHING_ELSE | times(FIRST + 3)


def test_the_time_after_text_is_followed_by_the_next_start_or_the_end():
    assert allowed([FIRST, 5, FIRST + 4]) == times(FIRST + 4) | {END, NO_TIMES}


def test_after_a_pair_comes_no_third_time():
    assert allowed([FIRST, 5, FIRST + 4, FIRST + 6]) == EVERYTHING_ELSE
    assert allowed([FIRST, 5, FIRST + 4, FIRST + 6, 7]) == EVERYTHING_ELSE | times(FIRST + 7)


def test_times_in_the_prefix_do_not_count():
    assert allowed([], prefix=(FIRST + 9, FIRST + 9)) == times(FIRST, FIRST + LATEST_START + 1)
    assert allowed([FIRST], prefix=(FIRST + 9,)) == EVERYTHING_ELSE


def test_a_time_is_due_when_all_together_are_more_probable_than_any_other_token():
    flat = torch.zeros(1, VOCABULARY).log_softmax(-1)
    assert allowed([FIRST, 5], flat) == times(FIRST + 1)
    flat[0, 3] += 5
    assert allowed([FIRST, 5], flat) == EVERYTHING_ELSE | times(FIRST + 1)


@pytest.mark.parametrize("seed", range(4))
def test_every_token_along_random_paths_is_allowed_as_by_transformers(seed):
    config = GenerationConfig(eos_token_id=END, no_timestamps_token_id=NO_TIMES, max_initial_timestamp_index=3)
    theirs = WhisperTimeStampLogitsProcessor(config, begin_index=len(PREFIX))
    ours, without = pair_timestamps(FIRST, END, LATEST_START), suppress(torch.tensor([NO_TIMES]))
    tokens, begins = torch.tensor([PREFIX] * 16), torch.full((16,), len(PREFIX))
    generator = torch.Generator().manual_seed(seed)
    for step in range(14):
        scores = log_probs(rows=16, seed=100 * seed + step, against_times=2.5)
        answer = ours(without(scores, tokens, begins), tokens, begins)
        assert torch.equal(answer.isfinite(), theirs(tokens, scores.clone()).isfinite())
        tokens = torch.cat([tokens, answer.softmax(-1).multinomial(1, generator=generator)], 1)
