"""The diarization head: LSTM layers, and for each frame and speaker a yes or no; the order of speakers is free."""

# B batch, F frames, D width, S speakers, N segments
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attune.audio.features import within
from attune.errors import ModelError
from attune.scorers import ActivityScorer, ScorerKind
from attune.tasks._precision import as_precise
from attune.types import SAMPLE_RATE, Batch, Loss, SpeakerSegment

if TYPE_CHECKING:
    from attune.tasks.diarize.settings import ActivityHeadConfig


@dataclass(frozen=True, slots=True)
class SpeakerTurns:
    """Segments with the number of their speaker, counted from 1: zeros are padding."""

    times: Tensor  # (N, 2) seconds
    speakers: Tensor  # (N,)


def speaker_turns(segments: Sequence[SpeakerSegment], names: Sequence[str]) -> SpeakerTurns:
    """The segments as tensors, speakers numbered in the order of `names`."""
    times = torch.tensor([[each.start, each.end] for each in segments], dtype=torch.float64).reshape(-1, 2)
    return SpeakerTurns(times, torch.tensor([names.index(each.speaker) + 1 for each in segments], dtype=torch.int64))


class ActivityHead(nn.Module):
    """Who is active in each frame."""

    scorer_kind: ScorerKind = "activity"

    def __init__(self, width_in: int, stride: int, speakers: int, settings: ActivityHeadConfig) -> None:
        super().__init__()
        self.seconds_per_frame = stride / SAMPLE_RATE
        self.lstm = nn.LSTM(
            width_in, settings.width, settings.layers, batch_first=True, bidirectional=settings.bidirectional
        )
        self.output = nn.Linear(settings.width * (1 + settings.bidirectional), speakers)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Logits (B, F, S)."""
        packed = pack_padded_sequence(frames, lengths.cpu(), batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=frames.shape[1])
        logits: Tensor = self.output(hidden)
        return logits

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """Cross-entropy under the best order of speakers of each utterance, summed; the count is decisions."""
        if not isinstance(batch.targets, SpeakerTurns):
            raise ModelError(
                f"This head needs speaker turns as targets; the task gives {type(batch.targets).__name__}."
            )
        logits = self(frames.to(self.output.weight.dtype), lengths).float()
        speakers = logits.shape[2]
        wanted = active_frames(batch.targets, logits.shape[1], speakers, self.seconds_per_frame)
        own = within(lengths, logits.shape[1])[..., None]
        pairs = [  # (B, S, S): the error of each output as each speaker
            (F.binary_cross_entropy_with_logits(logits, wanted[..., [each]].expand_as(logits), reduction="none") * own)
            for each in range(speakers)
        ]
        errors = torch.stack([pair.sum(1) for pair in pairs], dim=2)
        orders = [errors[:, range(speakers), list(order)].sum(1) for order in permutations(range(speakers))]
        return Loss(torch.stack(orders).amin(0).sum(), lengths.sum() * speakers)

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> ActivityScorer:
        """Logits of each frame and speaker."""
        return ActivityScorer(as_precise(self, frames)(frames, lengths).float(), lengths, self.seconds_per_frame)


def active_frames(turns: SpeakerTurns, frames: int, speakers: int, seconds_per_frame: float) -> Tensor:
    """Who is active in the middle of each frame (B, F, S)."""
    middles = (torch.arange(frames, device=turns.times.device) + 0.5) * seconds_per_frame
    times = turns.times[:, None]  # (B, 1, N, 2)
    inside = (times[..., 0] <= middles[:, None]) & (middles[:, None] < times[..., 1])  # (B, F, N)
    is_own = F.one_hot(turns.speakers, speakers + 1)[..., 1:]  # (B, N, S)
    return (inside.float() @ is_own.float()).clamp(max=1)
