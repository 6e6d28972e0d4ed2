"""An upstream with a task's head: layers, their weighted sum, and what the head learns from it."""

# B batch, F frames, D width
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from attune.audio.features import stack_frames
from attune.audio.masking import mask_features
from attune.contracts import Head
from attune.families._one_by_one import encode_one_by_one
from attune.families.ssl.cache import StoredFeatures
from attune.families.ssl.featurizer import LayerFeaturizer
from attune.families.ssl.frozen import FrozenUpstream, is_frozen
from attune.families.ssl.upstream import Upstream
from attune.kernels.int8 import int8_copy
from attune.types import Batch, Loss, Masks, Scorer


@dataclass(frozen=True, slots=True)
class FrameRules:
    """How the head's frames come from audio: its gain, which frames are kept, and how many are joined into one."""

    stack: int
    every: int
    gain_db: float

    def __call__(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The frames (B, F, D) that the head sees, and how many are each row's own."""
        kept = (lengths + self.every - 1) // self.every
        return stack_frames(frames[:, :: self.every], kept, self.stack)

    def louder(self, batch: Batch) -> Batch:
        """The batch with the gain in its audio."""
        return replace(batch, audio=batch.audio * 10 ** (self.gain_db / 20)) if self.gain_db else batch


class SslModel(nn.Module):
    """What the loop trains and the search decodes: the upstream's features, by the rules, given to the head."""

    def __init__(self, upstream: Upstream, featurizer: LayerFeaturizer, rules: FrameRules, head: Head) -> None:
        super().__init__()
        self.upstream = upstream
        self.featurizer = featurizer
        self.rules = rules
        self.head = head
        self.frozen = FrozenUpstream(upstream, featurizer)
        self.cache: StoredFeatures | None = None
        self.is_int8 = False

    def loss(self, batch: Batch) -> Loss:
        """The head's loss, summed over the batch."""
        frames, lengths = self._features(batch, batch.masks)
        return self.head.loss(*self.rules(frames, lengths), batch)

    def scorer(self, batch: Batch) -> Scorer:
        """What the head says about the batch, for a search."""
        return self.head.scorer(*self.head_frames(batch), batch)

    def head_frames(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What the head sees outside of training: frames (B, F, D), and how many are each row's own."""
        features = partial(self._features, masks=None)
        alone = self.is_int8 and not self.cache
        return self.rules(*(encode_one_by_one(features, batch) if alone else features(batch)))

    def int8(self) -> "SslModel":
        """A copy whose upstream computes in int8; the head, which scores, stays as precise as it is."""
        quantized = int8_copy(self, cast(nn.Module, self.upstream))
        quantized.is_int8 = True
        return quantized

    def frames(self, samples: int) -> int:
        """How many frames the head gets to see."""
        return -(-self.upstream.frames(samples) // (self.rules.every * self.rules.stack))

    def layer_weights(self) -> dict[int, float]:
        """How much each of the upstream's layers counts; empty where it has but one."""
        return self.featurizer.layer_weights() if len(self.upstream.widths) > 1 else {}

    def graph_samples(self, samples: int) -> int | None:
        """None: LSTM layers look at the lengths."""
        return None

    def _features(self, batch: Batch, masks: Masks | None) -> tuple[Tensor, Tensor]:
        """Features (B, F, D) and how many frames are each row's own.

        An upstream that learns hides what the masks say in its own way; otherwise parts of its features are hidden.
        """
        layers: Iterable[Tensor]
        batch = self.rules.louder(batch)
        if self.cache:
            layers, counts = self.cache.features(batch)
            features = next(iter(layers)) if self.featurizer.is_fixed else self.featurizer.combine(layers)
            weight = next(cast(nn.Module, self.head).parameters(), None)
            if weight is not None and features.dtype != torch.float64:
                features = features.to(weight.dtype)  # what is kept may be narrower
        elif is_frozen(self.upstream):
            layers, counts = self.frozen(batch.audio, batch.lengths)
            features = self.featurizer(layers)
        else:
            is_masked = masks is not None and self.upstream.applies_masks
            layers, counts = self.upstream(batch.audio, batch.lengths, masks if is_masked else None)
            features, masks = self.featurizer(layers), None if is_masked else masks
        return (mask_features(features, counts, masks) if masks else features), counts
