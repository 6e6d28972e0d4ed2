"""The sizes of a Conformer encoder; read without loading torch."""

from dataclasses import dataclass
from typing import Literal


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

    @property
    def weights(self) -> int:
        """How many there are at least."""
        return self.width * self.layers * (4 * self.width + 2 * self.inner + self.kernel) + 9 * self.channels
