"""A transducer that hears a stream: samples to encoded frames, as soon as there are enough of them for a chunk."""

# M mel bins, F frames, D width
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attune.errors import ModelError
from attune.families._conformer import Conformer
from attune.families._conformer_stream import ConformerStream, EncoderPast
from attune.families.transducer.front_end import FrontEnd
from attune.families.transducer.scorer import ModelScorer

DROPPED = 2  # subsampled frames at the edge of a piece, which lack what came before


@dataclass(slots=True)
class AudioStream:
    """One recording on its way through the encoder: what is kept of it, and how far it has come."""

    samples: Tensor  # from sample `first_sample` on
    mels: Tensor  # (M, F) from mel frame `first_mel` on
    waiting: Tensor  # (F, D) subsampled frames that are not a whole chunk yet
    past: EncoderPast
    first_sample: int = 0
    first_mel: int = 0
    mel_count: int = 0
    frame_count: int = 0  # subsampled so far
    is_last: bool = False

    @property
    def sample_count(self) -> int:
        """Samples so far."""
        return self.first_sample + len(self.samples)


class StreamEncoder:
    """Front end, subsampling and encoder of a streaming transducer, for any number of streams."""

    def __init__(
        self, front_end: FrontEnd, encoder: Conformer, scorer: Callable[[Tensor, Tensor], ModelScorer]
    ) -> None:
        if front_end.shape.is_normalized:
            raise ModelError("This model normalizes its features over whole utterances; it cannot stream.")
        self.front_end, self.encoder, self.scorer = front_end, encoder, scorer
        self.conformer = ConformerStream(encoder)
        self.device = front_end.featurizer.window.device

    def open(self) -> AudioStream:
        """A stream before its first sample."""
        shape, width = self.front_end.shape, self.encoder.pre_encode.out.out_features
        return AudioStream(
            torch.empty(0, device=self.device),
            torch.empty(shape.bins, 0, device=self.device),
            torch.empty(0, width, device=self.device),
            self.conformer.start(self.device),
        )

    def feed(self, stream: AudioStream, samples: NDArray[np.float32], is_last: bool = False) -> None:
        """Go on with more samples, up to the frames that they are enough for."""
        stream.samples = torch.cat([stream.samples, torch.from_numpy(samples).to(self.device)])
        stream.is_last = is_last
        self._take_mels(stream)
        self._subsample(stream)

    def is_ready(self, stream: AudioStream) -> bool:
        """Whether there is another chunk, or the last part of one."""
        return len(stream.waiting) >= (1 if stream.is_last else self.conformer.chunk)

    def step(self, streams: Sequence[AudioStream]) -> ModelScorer:
        """What a search can search: the next chunk of each of these streams, which are ready."""
        chunk = self.conformer.chunk
        parts = [stream.waiting[:chunk] for stream in streams]
        lengths = torch.tensor([len(part) for part in parts], device=self.device)
        frames = torch.stack([torch.nn.functional.pad(part, (0, 0, 0, chunk - len(part))) for part in parts])
        encoded, past = self.conformer.step(frames, lengths, EncoderPast.together([each.past for each in streams]))
        for stream, own in zip(streams, past.apart(), strict=True):
            stream.waiting, stream.past = stream.waiting[chunk:], own
        return self.scorer(encoded, lengths)

    def _take_mels(self, stream: AudioStream) -> None:
        """The energies of all windows that are complete; at the end, of those that silence completes."""
        shape = self.front_end.shape
        half, total = shape.transform // 2, stream.sample_count
        if not total:
            return
        ready = self.front_end.frames(total) if stream.is_last else (total - half) // shape.hop + 1
        if ready <= stream.mel_count:
            return
        first, last = stream.mel_count * shape.hop - half, (ready - 1) * shape.hop + half
        emphasized = self._emphasized(stream, first, last)
        stream.mels = torch.cat([stream.mels, self.front_end.piece(emphasized)], 1)
        stream.mel_count = ready
        kept = max(stream.first_sample, ready * shape.hop - half - 1)
        stream.samples, stream.first_sample = stream.samples[kept - stream.first_sample :], kept

    def _emphasized(self, stream: AudioStream, first: int, last: int) -> Tensor:
        """The samples from `first` up to `last`, zero outside the recording, less a part of the one before each."""
        begin, end = max(first, 0), min(last, stream.sample_count)
        own = stream.samples[begin - stream.first_sample : end - stream.first_sample]
        before = stream.samples[max(begin - 1, 0) - stream.first_sample : end - 1 - stream.first_sample]
        if begin == 0:
            before = torch.nn.functional.pad(before, (1, 0))
        emphasized = own - self.front_end.shape.preemphasis * before
        return torch.nn.functional.pad(emphasized, (begin - first, last - end))

    def _subsample(self, stream: AudioStream) -> None:
        """The frames whose energies are all there; those near the edge of what is kept are computed anew."""
        factor = self.encoder.stride
        ready = self.encoder.frames(stream.mel_count) if stream.is_last else (stream.mel_count - 1) // factor + 1
        if ready <= stream.frame_count or not stream.mel_count:
            return
        piece = stream.mels[None]
        frames, _ = self.encoder.pre_encode(piece, torch.tensor([piece.shape[2]], device=self.device))
        skipped = stream.first_mel // factor
        stream.waiting = torch.cat([stream.waiting, frames[0, stream.frame_count - skipped : ready - skipped]])
        stream.frame_count = ready
        kept = max(0, ready - DROPPED) * factor
        stream.mels, stream.first_mel = stream.mels[:, kept - stream.first_mel :], kept
