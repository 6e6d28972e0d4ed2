"""A transducer as the loop trains it and the search decodes it."""

# B batch, T samples, F frames, U labels, J joint width
import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from attune.audio.masking import mask_features
from attune.errors import ModelError
from attune.families._conformer import Conformer
from attune.families._conformer_shape import ConformerShape
from attune.families._one_by_one import encode_one_by_one
from attune.families.transducer.contextnet import ContextNet
from attune.families.transducer.front_end import FrontEnd
from attune.families.transducer.joint import Joint
from attune.families.transducer.prediction import PredictionNet
from attune.families.transducer.scorer import ModelScorer
from attune.families.transducer.shape import ContextNetShape, TransducerShape
from attune.families.transducer.stream import StreamEncoder
from attune.kernels.int8 import int8_copy
from attune.kernels.transducer import Lattice, transducer_loss
from attune.plain_yaml import Plain
from attune.types import SAMPLE_RATE, Batch, Loss


class TransducerModel(nn.Module):
    """Its parts are called as in NeMo; the blank is the last of the tokens, as there."""

    def __init__(
        self,
        shape: TransducerShape,
        pieces: Sequence[str],
        described: Mapping[str, Plain],
        is_frozen: bool = False,
        saves_memory: bool = False,
        joint_cells: int | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.described = described  # NeMo's configuration of it
        self.joint_cells = joint_cells
        self.narrow: torch.dtype | None = None  # what the encoder computes in for a search, if not in its own type
        self.is_int8 = False
        self.pieces = tuple(pieces)  # how each label is written
        labels = len(self.pieces)
        self.lattice = Lattice(
            labels, shape.durations, shape.loss.sigma, shape.loss.fastemit, activation=shape.joint.activation
        )
        self.preprocessor = FrontEnd(shape.front_end)
        self.encoder = _encoder(shape.encoder, is_frozen, saves_memory)
        self.decoder = PredictionNet(labels, shape.prediction)
        outputs = labels + 1 + len(shape.durations)
        self.joint = Joint(shape.encoder.width, shape.prediction.width, outputs, shape.joint)

    def loss(self, batch: Batch) -> Loss:
        """The negative log-likelihood of the texts, summed.

        It is counted by labels, so that long texts weigh as much as short ones put together; a silence counts as one.
        """
        targets = batch.tokens
        encoded, lengths = self.encode(batch)
        projected = self.joint.project(encoded, self.decoder.prediction(targets.ids))
        output = self.joint.output
        each = transducer_loss(
            *projected, output.weight, output.bias, targets.ids, lengths, targets.lengths, self.lattice,
            self.joint_cells,
        )  # fmt: skip
        return Loss(each.sum(), targets.lengths.clamp(min=1).sum())

    def scorer(self, batch: Batch) -> ModelScorer:
        """What a search can search. The encoder may be narrow; nets and joint, which add up, are as their weights."""
        with torch.autocast(batch.audio.device.type, self.narrow) if self.narrow else nullcontext():
            encoded, lengths = encode_one_by_one(self.encode, batch) if self.is_int8 else self.encode(batch)
        return self._scorer(encoded.to(self.joint.enc.weight.dtype), lengths)

    def _scorer(self, encoded: Tensor, lengths: Tensor) -> ModelScorer:
        return ModelScorer(self.decoder.prediction, self.joint, encoded, lengths, self.lattice)

    def stream_encoder(self) -> StreamEncoder:
        """Encodes recordings while they come, for models whose encoder was trained for that."""
        if not isinstance(self.encoder, Conformer):
            raise ModelError("A ContextNet needs whole utterances; it cannot stream.")
        return StreamEncoder(self.preprocessor, self.encoder, self._scorer)

    @property
    def can_stream(self) -> bool:
        """Whether its encoder sees a limited context."""
        return isinstance(self.encoder, Conformer) and self.encoder.context is not None

    def half_precision(self, dtype: torch.dtype) -> "TransducerModel":
        """The same model, whose encoder computes in `dtype` for a search: features and norms are too wide for that."""
        narrow = copy.copy(self)
        narrow.narrow = dtype
        return narrow

    def int8(self) -> "TransducerModel":
        """A copy whose encoder computes in int8; nets and joint, which add up, are as they were."""
        quantized = int8_copy(self, self.encoder)
        quantized.is_int8 = True
        return quantized

    def frames(self, samples: int) -> int:
        """How many frames the encoder makes of this much audio."""
        return self.encoder.frames(self.preprocessor.frames(samples))

    def graph_samples(self, samples: int) -> int | None:
        """None: LSTM layers and tiles look at the lengths."""
        return None

    @property
    def seconds_per_frame(self) -> float:
        """From one of the encoder's frames to the next."""
        return self.encoder.stride * self.preprocessor.shape.hop / SAMPLE_RATE

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The encoder's frames (B, F, D), and how many of them are each row's own."""
        mels, counts = self.preprocessor(batch.audio, batch.lengths)
        if batch.masks:
            masked = mask_features(mels.transpose(1, 2), counts, batch.masks)
            mels = masked.transpose(1, 2)
        encoded: tuple[Tensor, Tensor] = self.encoder(mels, counts)
        return encoded


def _encoder(shape: ContextNetShape | ConformerShape, is_frozen: bool, saves_memory: bool) -> ContextNet | Conformer:
    if isinstance(shape, ConformerShape):
        return Conformer(shape, is_frozen, saves_memory)
    return ContextNet(shape, is_frozen, saves_memory)
