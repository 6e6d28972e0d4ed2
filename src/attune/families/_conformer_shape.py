"""The sizes of a Conformer encoder; read without loading torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ContextShape:
    """How far a streaming encoder sees: chunks of `look_ahead + 1` frames, and whole chunks before them.

    A model may be trained for several look-aheads; it is used with the first, unless a recipe chooses.
    """

    left: int  # frames; -1: all
    look_aheads: tuple[int, ...]  # frames


@dataclass(frozen=True, slots=True)
class ConformerShape:
    """A Conformer encoder; with depth-wise subsampling, a FastConformer."""

    bins: int
    width: int
    layers: int
    heads: int
    inner: int
    kernel: int
    subsampling: Literal["striding", "dw_striding"]
    factor: int
    channels: int
    scales_input: bool
    has_bias: bool
    dropout: float
    dropout_before: float
    dropout_positions: float
    dropout_attention: float
    context: ContextShape | None = None  # None: all of the utterance
    is_causal: bool = False  # convolutions see no later frame
    has_layer_norm: bool = False  # in the convolutions, instead of a batch norm

    @property
    def weights(self) -> int:
        """How many there are at least."""
        return self.width * self.layers * (4 * self.width + 2 * self.inner + self.kernel) + 9 * self.channels
