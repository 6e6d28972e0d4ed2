import numpy as np
import torch

from attune.decoding.ctc_alignment import align
from attune.decoding.forced import TokenText, align_windows
from attune.scorers import CtcScorer
from attune.types import SAMPLE_RATE

STEP = 320  # samples of a frame
SPACE, LETTERS = 1, (2, 3, 4, 5)


def made_up(words, seed=0, gap=(4, 20)):
    """A "recording" whose samples name the token of their frame, the text in it, and when each word begins."""
    random = np.random.default_rng(seed)
    frames, tokens, bounds, starts = [0] * 5, [], [], []
    for _ in range(words):
        letters = random.choice(LETTERS, random.integers(2, 5)).tolist()
        if tokens:
            tokens.append(SPACE)
        starts.append(len(frames))
        for letter in letters:
            frames += [letter, 0]
        bounds.append((len(tokens), len(tokens) + len(letters)))
        tokens += letters
        frames += [SPACE, *[0] * int(random.integers(*gap))]
    return np.repeat(np.array(frames, np.float32), STEP), TokenText(tuple(tokens), tuple(bounds)), starts


def by_ctc(widths):
    def answer(windows):
        found = []
        for window in windows:
            frames = torch.from_numpy(window.samples[::STEP].copy()).long()
            log_probs = torch.full((1, len(frames), 6), -8.0)
            log_probs[0, torch.arange(len(frames)), frames] = -0.01
            widths.append(len(frames))
            found += align(CtcScorer(log_probs, torch.tensor([len(frames)])), [window.forced])
        return found

    return answer


def test_windows_find_what_the_whole_recording_has():
    samples, text, starts = made_up(120)
    widths = []
    (found,) = align_windows([samples], [text], by_ctc(widths), STEP, 4.0)
    assert max(widths) <= 200 < len(samples) // STEP and len(widths) > 5
    assert [round(found.starts[first] * SAMPLE_RATE / STEP) for first, _ in text.words] == starts
    assert len(found.starts) == len(text.tokens)


def test_long_silence_is_crossed_and_short_recordings_take_one_window():
    samples, text, starts = made_up(4)
    quiet = np.concatenate([np.zeros(1000 * STEP, np.float32), samples])
    found = align_windows([quiet, samples], [text, text], by_ctc([]), STEP, 4.0)
    for times, offset in zip(found, (1000, 0), strict=True):
        assert [round(times.starts[first] * SAMPLE_RATE / STEP) - offset for first, _ in text.words] == starts


def test_speech_without_text_between_words_does_not_pull_words_away():
    samples, text, starts = made_up(40)
    cut = starts[20] * STEP
    foreign, _, _ = made_up(8, seed=5)
    (found,) = align_windows([np.concatenate([samples[:cut], foreign, samples[cut:]])], [text], by_ctc([]), STEP, 4.0)
    moved = [start + (len(foreign) // STEP if number >= 20 else 0) for number, start in enumerate(starts)]
    right = [
        abs(round(found.starts[first] * SAMPLE_RATE / STEP) - start) <= 1
        for (first, _), start in zip(text.words, moved, strict=True)
    ]
    assert sum(right) >= 38


def test_text_that_goes_on_after_the_audio_is_left_out():
    samples, text, _ = made_up(10)
    (found,) = align_windows([samples[: 40 * STEP]], [text], by_ctc([]), STEP, 0.5)
    assert 0 < len(found.starts) < len(text.tokens)
