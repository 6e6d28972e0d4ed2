"""Streams of a transducer that hears them chunk by chunk: tokens as soon as their frames are there.

Streams are decoded together, and each has the tokens that its whole recording would have under the same context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attune.contracts import TaskModel
from attune.decoding.transducer import StreamRows, greedy_chunk, start_stream
from attune.errors import ModelError
from attune.scorers import StreamingModel
from attune.types import Hypothesis


@dataclass(slots=True)
class TokenStream:
    """One recording on its way, and what was found in it so far."""

    audio: Any  # the encoder's own
    rows: StreamRows | None = None
    found: Hypothesis = field(default_factory=lambda: Hypothesis((), 0.0))
    frames: int = 0  # decoded so far


class StreamDecoder:
    """A streaming model and its greedy search, for any number of streams."""

    def __init__(self, task_model: TaskModel) -> None:
        model = task_model.model
        if not isinstance(model, StreamingModel) or not model.can_stream:
            raise ModelError("This model needs whole utterances; it was not trained for streaming.")
        self.encoder = model.stream_encoder()

    def open(self) -> TokenStream:
        """A stream before its first sample."""
        return TokenStream(self.encoder.open())

    def feed(
        self, streams: Sequence[TokenStream], samples: Sequence[NDArray[np.float32]], is_last: bool = False
    ) -> None:
        """Go on with more samples of each stream; `found` then has what they are enough for."""
        with torch.inference_mode():
            for stream, own in zip(streams, samples, strict=True):
                self.encoder.feed(stream.audio, own, is_last)
            while ready := [stream for stream in streams if self.encoder.is_ready(stream.audio)]:
                self._step(ready)

    def _step(self, streams: Sequence[TokenStream]) -> None:
        scorer = self.encoder.step([stream.audio for stream in streams])
        before = StreamRows.together([stream.rows or start_stream(scorer) for stream in streams])
        found, after = greedy_chunk(scorer, before)
        lengths = scorer.lengths.tolist()
        for stream, new, rows, length in zip(streams, found, after.apart(), lengths, strict=True):
            stream.found, stream.rows = _joined(stream.found, new, stream.frames), rows
            stream.frames += length


def _joined(before: Hypothesis, new: Hypothesis, frames: int) -> Hypothesis:
    return replace(
        before,
        tokens=(*before.tokens, *new.tokens),
        score=before.score + new.score,
        frames=(*before.frames, *(frame + frames for frame in new.frames)),
        confidences=(*before.confidences, *new.confidences),
    )
