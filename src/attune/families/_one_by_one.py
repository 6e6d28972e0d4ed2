"""Encode utterances one by one, where the padding of a batch would show.

Sums of other lengths are rounded otherwise. In fp32 that is some 1e-7; rounded to int8, it becomes a hundredth here and
there.
"""

# B batch, F frames, D width
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attune.types import Batch


def encode_one_by_one(encode: Callable[[Batch], tuple[Tensor, Tensor]], batch: Batch) -> tuple[Tensor, Tensor]:
    """What an encoder that looks at the audio alone makes of each row: frames (B, F, D), and how many are its own."""
    rows = zip(batch.audio, batch.lengths, strict=True)
    found = [encode(replace(batch, audio=audio[None, :length], lengths=length[None])) for audio, length in rows]
    frames = pad_sequence([frames[0] for frames, _ in found], batch_first=True)
    return frames, torch.cat([count for _, count in found])
