"""What wav2vec2-BERT reads: Kaldi's log-mel energies of 16-bit samples, normed by utterance, two frames to one."""

# B batch, T samples, F frames
import torch
from torch import Tensor

from attune.audio.features import frame_count, log_mel, within

FRAMES_STACKED = 2
FULL_SCALE = 2.0**15
LEAST_VARIANCE = 1e-7


@torch.no_grad()
def seamless_fbank(audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Frames (B, F, 160) and how many are each row's own; a last frame without a second one is left out."""
    with torch.autocast(audio.device.type, enabled=False):
        frames, counts = log_mel(audio.float() * FULL_SCALE, lengths)
        frames = frames.float().to(frames.dtype)  # as the model's own extractor rounds them
        own, numbers = within(counts, frames.shape[1])[..., None], counts[:, None, None]
        centered = (frames - frames.sum(1, keepdim=True) / numbers).masked_fill(~own, 0)
        variance = centered.square().sum(1, keepdim=True) / (numbers - 1).clamp(min=1)
        normed = (centered * (variance + LEAST_VARIANCE).rsqrt()).float()
        if normed.shape[1] % FRAMES_STACKED:
            spare = 1 if normed.shape[1] == 1 else -1
            normed = torch.nn.functional.pad(normed, (0, 0, 0, spare))
        stacked = normed.reshape(len(normed), -1, FRAMES_STACKED * normed.shape[2])
        return stacked, (counts // FRAMES_STACKED).clamp(min=1)


def stacked_count(samples: int, stacked: int) -> int:
    """How many stacked frames so many samples have, at least one."""
    return max(1, frame_count(samples) // stacked)
