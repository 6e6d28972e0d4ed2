from dataclasses import replace

import pytest
import torch

from attune.audio.masking import draw_masks, mask_features
from attune.audio.settings import MasksConfig

SETTINGS = MasksConfig(time_masks=3, time_part=0.1, frequency_masks=2, frequency_bins=6)


def hidden(lengths, seeds, settings=SETTINGS, frames=None, bins=24):
    """What is masked of features that are one everywhere (B, F, D)."""
    lengths = torch.tensor(lengths)
    features = torch.ones(len(lengths), frames or int(lengths.max()), bins)
    return mask_features(features, lengths, draw_masks(seeds, settings)) == 0


def test_a_row_is_masked_the_same_alone_and_in_any_company():
    together = hidden([200, 120, 77], [5, 6, 7])
    backwards = hidden([77, 120, 200], [7, 6, 5])
    for row, (length, seed) in enumerate([(200, 5), (120, 6), (77, 7)]):
        (alone,) = hidden([length], [seed])
        assert torch.equal(together[row, :length], alone)
        assert torch.equal(backwards[2 - row, :length], alone)


def test_another_seed_gives_other_masks():
    one, other = hidden([200, 200], [1, 2])
    assert not torch.equal(one, other)


def test_masks_of_time_lie_within_the_rows_own_length_and_are_no_longer_than_their_part_of_it():
    settings = MasksConfig(time_masks=1, time_part=0.1, frequency_masks=0)
    lengths = [60] * 200 + [400] * 200
    covered = hidden(lengths, range(400), settings)[..., 0]  # (B, F)
    widths = covered.sum(1)
    assert not covered[:200, 60:].any()
    assert widths[:200].max() == 6 and widths[200:].max() == 40
    assert widths[:200].min() == widths[200:].min() == 0
    assert covered[:200, :60].any(0).all() and covered[200:, :400].any(0).all()  # everywhere, the edges too


def test_masks_of_frequency_hide_whole_bands_and_every_width_is_as_likely():
    settings = MasksConfig(time_masks=0, frequency_masks=1, frequency_bins=6)
    covered = hidden([9] * 700, range(700), settings)
    assert torch.equal(covered.any(1), covered.all(1))
    counts = torch.bincount(covered[:, 0].sum(1))
    assert len(counts) == 7 and counts.min() > 70  # 100 each is expected


def test_a_band_is_never_wider_than_the_features():
    assert hidden([9] * 50, range(50), MasksConfig(frequency_bins=27), bins=4).shape == (50, 9, 4)


def test_without_masks_nothing_is_hidden():
    assert not hidden([50], [1], MasksConfig(time_masks=0, frequency_masks=0)).any()


def test_what_is_not_hidden_is_left_as_it_was_and_passes_gradients():
    features = torch.randn(2, 50, 24, requires_grad=True)
    masked = mask_features(features, torch.tensor([50, 40]), draw_masks([1, 2], SETTINGS))
    assert torch.equal(masked[masked != 0], features[masked != 0])
    masked.sum().backward()
    assert torch.equal(features.grad != 0, masked != 0)


@pytest.mark.gpu
def test_a_gpu_hides_the_same():
    features, lengths, masks = torch.ones(64, 3000, 80), torch.arange(64) * 40 + 400, draw_masks(range(64), SETTINGS)
    expected = mask_features(features, lengths, masks)
    moved = replace(masks, draws=masks.draws.cuda())
    assert torch.equal(mask_features(features.cuda(), lengths.cuda(), moved).cpu(), expected)
