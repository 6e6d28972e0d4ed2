import torch

from attune.families.whisper.windows import FLOOR_SECONDS, own_frames, windows_of

SECOND, POSITIONS = 16_000, 1500


def trimmed(*seconds, padded_to=None):
    lengths = torch.tensor([round(each * SECOND) for each in seconds])
    samples = round((padded_to or max(seconds)) * SECOND)
    return windows_of("trimmed", lengths, samples, POSITIONS)


def test_a_full_window_has_every_position_and_hides_nothing():
    windows = windows_of("full", torch.tensor([SECOND]), SECOND, POSITIONS)
    assert windows.width == POSITIONS
    assert windows.mask() is None


def test_an_own_window_is_whole_seconds_with_a_floor_and_a_ceiling():
    windows = trimmed(0.5, 7.0, 7.1, 30.0)
    assert windows.own.tolist() == [50 * FLOOR_SECONDS, 350, 400, POSITIONS]
    assert windows.width == POSITIONS
    assert [own_frames("trimmed", round(each * SECOND), POSITIONS) for each in (0.5, 7.0, 7.1, 30.0)] == [
        *windows.own.tolist()
    ]


def test_the_own_window_does_not_depend_on_the_batch():
    assert trimmed(6.5, padded_to=29).own.tolist() == trimmed(6.5, 29).own.tolist()[:1] == [350]


def test_short_utterances_all_have_the_floor_and_need_no_mask():
    windows = trimmed(0.1, 2.0, FLOOR_SECONDS)
    assert windows.width == 50 * FLOOR_SECONDS
    assert windows.mask() is None


def test_what_is_beyond_the_own_window_is_zero_and_hidden():
    windows = trimmed(6, 8)
    cleared = windows.clear(torch.ones(2, 3, 800))
    assert cleared[0, :, :600].all() and not cleared[0, :, 600:].any()
    assert cleared[1].all()
    assert windows.mask().sum((1, 2, 3)).tolist() == [300, 400]


def test_a_model_with_fewer_positions_has_narrower_windows():
    assert own_frames("trimmed", 30 * SECOND, 400) == own_frames("full", SECOND, 400) == 400
