"""The GRU decoder's attention against its textbook form."""

import torch

from attune.families.aed.decoder import LocationAttention
from attune.families.aed.shape import GruDecoderShape

SHAPE = GruDecoderShape(embedding=4, width=6, attention_width=5, attention_channels=3, attention_reach=4)


def test_attention_is_tanh_of_content_state_and_convolved_location_for_all_rows_of_an_utterance() -> None:
    torch.manual_seed(0)
    attention = LocationAttention(SHAPE, frame_width=7)
    frames, lengths = torch.randn(2, 12, 7), torch.tensor([12, 9])
    hidden, before = torch.randn(6, 6), torch.rand(6, 12).softmax(1)
    context, weights = attention(attention.attend(frames, lengths), hidden, before)

    rows = frames.repeat_interleave(3, 0)
    location = attention.location(attention.conv(before[:, None]).transpose(1, 2))
    inner = torch.tanh(attention.encoded(rows) + attention.state(hidden)[:, None] + location)
    beyond = torch.arange(12) >= lengths.repeat_interleave(3)[:, None]
    expected = attention.energy(inner)[..., 0].masked_fill(beyond, -torch.inf).softmax(1)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(context, attention.output((expected[:, None] @ rows)[:, 0]))


def test_the_location_features_learn_through_the_matrix_that_stands_for_their_convolution() -> None:
    torch.manual_seed(0)
    attention = LocationAttention(SHAPE, frame_width=7)
    _, weights = attention(
        attention.attend(torch.randn(1, 12, 7), torch.tensor([12])), torch.randn(1, 6), torch.rand(1, 12)
    )
    weights[0, 3].backward()
    assert attention.conv.weight.grad is not None and attention.conv.weight.grad.abs().sum() > 0
