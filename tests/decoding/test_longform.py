import itertools

import numpy as np
import pytest

from attune.contracts import TimestampTokens
from attune.decoding.longform import Segment, WindowSegments, read_windows, split_window
from attune.types import SAMPLE_RATE

TIMESTAMPS = TimestampTokens(begin=1000)


def at(seconds):
    return 1000 + round(seconds / 0.02)


def split(*tokens, seconds=30.0):
    return split_window(tokens, TIMESTAMPS, seconds)


def test_two_timestamps_in_a_row_separate_segments_and_the_cut_off_rest_is_left_to_the_next_window():
    found = split(at(0), 1, 2, at(4), at(5), 3, at(28), at(28), 4, 5)
    assert found == WindowSegments((Segment(0, 4, (1, 2)), Segment(5, 28, (3,))), 28)


def test_a_single_timestamp_at_the_end_means_that_nothing_follows():
    found = split(at(0), 1, at(4), at(5), 2, at(7))
    assert found == WindowSegments((Segment(0, 4, (1,)), Segment(5, 7, (2,))), 30)
    assert split(at(1), 1, at(4)) == WindowSegments((Segment(1, 4, (1,)),), 30)


def test_without_pairs_the_window_is_one_segment():
    assert split(1, 2, 3) == WindowSegments((Segment(0, 30, (1, 2, 3)),), 30)
    assert split(at(2), 1, 2) == WindowSegments((Segment(2, 30, (1, 2)),), 30)


@pytest.mark.parametrize("tokens", [(), (at(0),), (at(0), at(0)), (at(3), at(3), at(3))])
def test_without_text_there_is_no_segment_and_it_still_goes_on(tokens):
    found = split(*tokens)
    assert found.segments == () and found.seconds > 0


def test_a_segment_ends_with_the_recording_and_begins_within_it():
    found = split(at(0), 1, at(9), at(9), 2, at(11), seconds=6.0)
    assert found == WindowSegments((Segment(0, 6.0, (1,)),), 6.0)


def words(seconds):
    """A recording whose samples are the number of each half second."""
    return np.repeat(np.arange(1, round(2 * seconds) + 1, dtype=np.float32), SAMPLE_RATE // 2)


def decode_perfectly(windows):
    """A perfect decoder of `words`: each with its timestamps, and of one that the window cuts off only the start."""
    return [tuple(token for word in tokens_of(window.samples) for token in word) for window in windows]


def tokens_of(samples):
    edges = [0, *(np.flatnonzero(np.diff(samples)) + 1).tolist(), len(samples)]
    for start, end in itertools.pairwise(edges):
        is_whole = end - start == SAMPLE_RATE // 2
        yield [at(start / SAMPLE_RATE), int(samples[start]), *([at(end / SAMPLE_RATE)] if is_whole else [])]


def test_windows_follow_each_other_until_everything_is_transcribed_once():
    lengths = []

    def decode(windows):
        lengths.append([len(window.samples) / SAMPLE_RATE for window in windows])
        return decode_perfectly(windows)

    found = read_windows([words(8.0), words(3.0), words(0.5)], decode, TIMESTAMPS, seconds=3.2)
    for segments, count in zip(found, [16, 6, 1], strict=True):
        assert [segment.tokens for segment in segments] == [(number,) for number in range(1, count + 1)]
        times = [time for segment in segments for time in (segment.start, segment.end)]
        assert times == pytest.approx([(index + 1) // 2 / 2 for index in range(2 * count)])
    assert lengths == [[3.2, 3.0, 0.5], [3.2], [2.0]]  # each window begins where the one before is sure


def test_a_window_comes_with_the_tokens_of_the_one_before():
    seen = []

    def decode(windows):
        seen.extend(window.previous for window in windows)
        return decode_perfectly(windows)

    read_windows([words(5.0)], decode, TIMESTAMPS, seconds=2.0)
    assert seen == [(), (1, 2, 3, 4), (5, 6, 7, 8)]


def test_a_recordings_segments_do_not_depend_on_the_others():
    recordings = [words(7.5), words(2.5), words(4.0)]
    together = read_windows(recordings, decode_perfectly, TIMESTAMPS, seconds=2.2)
    assert together == [read_windows([each], decode_perfectly, TIMESTAMPS, seconds=2.2)[0] for each in recordings]
