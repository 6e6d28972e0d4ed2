"""One policy for downloads, API requests and range reads."""

import pytest

from attune.errors import SourceError
from attune.sources import RetryableError, RetryPolicy, with_retries
from attune.sources._responses import seconds_until
from attune.sources._retry import Retries, is_transient

POLICY = RetryPolicy(tries=6, first_wait=1.0, longest_wait=4.0)


@pytest.fixture
def waits(monkeypatch):
    """The seconds that would have been slept."""
    found = []
    monkeypatch.setattr("time.sleep", found.append)
    return found


def failing(times, **about):
    failures = [RetryableError("busy", **about) for _ in range(times)]

    def request():
        if failures:
            raise failures.pop()
        return "done"

    return request


def test_waits_double_up_to_the_longest_and_are_jittered(waits):
    assert with_retries("x://a", failing(5), POLICY) == "done"
    for wait, expected in zip(waits, (1, 2, 4, 4, 4), strict=True):
        assert 0.5 * expected <= wait <= 1.5 * expected
    assert len({wait / expected for wait, expected in zip(waits, (1, 2, 4, 4, 4), strict=True)}) > 1


def test_the_last_try_is_an_error_that_names_the_address(waits):
    with pytest.raises(SourceError, match=r"Cannot read x://a: busy \(6 attempts in a row\)\. Check the URL"):
        with_retries("x://a", failing(6), POLICY)
    assert len(waits) == 5


def test_a_server_that_asks_for_time_gets_it_within_bounds(waits):
    with_retries("x://a", failing(1, after_seconds=7.0), POLICY)
    with_retries("x://a", failing(1, after_seconds=1e6), POLICY)
    assert waits == [7.0, 16.0]


def test_failures_are_counted_anew_when_bytes_have_advanced_and_only_then(waits):
    retries = Retries("x://a", POLICY)
    for reached in range(1, 21):
        retries.wait(RetryableError("cut"), reached)
    with pytest.raises(SourceError, match="6 attempts"):
        for reached in range(1, 21):  # as a server without ranges does: from the first byte again, each time
            retries.wait(RetryableError("cut"), reached)
    assert len(waits) == 24


def test_a_server_that_brings_a_byte_at_a_time_is_left(waits):
    retries = Retries("x://a", POLICY)
    with pytest.raises(SourceError, match="100 attempts with little progress"):
        for reached in range(1, 1000):
            retries.wait(RetryableError("cut"), reached)


def test_a_pause_without_end_is_bounded_and_reported(waits):
    reported = []
    with pytest.raises(SourceError, match="asked to wait 99,999,999 s, which is too long"):
        with_retries("x://a", failing(9, after_seconds=99_999_999.0), RetryPolicy(), reported.append)
    assert sum(waits) <= 300 + 5 * 45
    assert reported[0] == "busy and asked to wait 99,999,999 s, which is too long; attempt 2 of 6"


def test_some_statuses_may_pass():
    statuses = (301, 400, 401, 403, 404, 408, 416, 425, 429, 500, 503, 599)
    assert list(filter(is_transient, statuses)) == [408, 425, 429, 500, 503, 599]


def test_retry_after_is_read_in_both_its_forms():
    assert (seconds_until(None), seconds_until("12"), seconds_until("soon")) == (0.0, 12.0, 0.0)
    assert seconds_until("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert (seconds_until("²"), seconds_until("Wed, 99 Oct 999999999 07:28:00 GMT")) == (0.0, 0.0)
    assert seconds_until("Wed, 21 Oct 2999 07:28:00 GMT") > 1e9
