"""The Conformer or FastConformer encoder of a `.nemo` file as an upstream."""

# B batch, T samples, F frames, D width
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from attune.errors import ModelError
from attune.families._checkpoints import fitted
from attune.families._conformer import Conformer
from attune.families._conformer_shape import ConformerShape
from attune.families.transducer.archive import CONFIG, read_archive
from attune.families.transducer.front_end import FrontEnd
from attune.families.transducer.shape import TransducerShape, read_shape
from attune.families.transducer.vocabulary import read_config
from attune.families.transducer.weights import without_ctc
from attune.files import write_text
from attune.types import Masks


class NemoUpstream(nn.Module):
    """The input of the first layer, and each layer's output. Batch norms keep the statistics they came with."""

    applies_masks = False
    max_seconds: float | None = None

    def __init__(self, shape: TransducerShape) -> None:
        super().__init__()
        if not isinstance(shape.encoder, ConformerShape):
            raise ModelError(
                "This .nemo file has no Conformer encoder; other NeMo encoders are not supported as upstreams."
            )
        self.preprocessor = FrontEnd(shape.front_end)
        self.encoder = Conformer(shape.encoder, is_frozen=True)
        self.stride = shape.front_end.hop * self.encoder.stride
        self.widths: tuple[int, ...] = (shape.encoder.width,) * (shape.encoder.layers + 1)

    def forward(self, audio: Tensor, lengths: Tensor, masks: Masks | None = None) -> tuple[Iterator[Tensor], Tensor]:
        """The layers (B, F, D), computed as they are asked for, and the number of each row's own frames."""
        mels, counts = self.preprocessor(audio, lengths)
        weight: Tensor = self.encoder.pre_encode.out.weight
        return self.encoder.states(mels.to(weight.dtype), counts)

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""
        return self.encoder.frames(self.preprocessor.frames(samples))


def build_nemo(assets: Path) -> NemoUpstream:
    """The encoder that the files in `assets` describe, with random weights."""
    described = read_config(assets)
    if described is None:
        raise ModelError(f"{assets} has no {CONFIG}: its encoder is unknown. Set model.weights.")
    return NemoUpstream(read_shape(described))


def read_nemo(path: Path, assets: Path) -> Mapping[str, Tensor]:
    """The encoder and the front-end of a `.nemo` file."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder; the upstream `nemo` needs a .nemo file.")
    archive = without_ctc(read_archive(path))
    with torch.device("meta"):  # what the file claims takes no memory until its weights bear it out
        own = NemoUpstream(read_shape(archive.config)).state_dict()
    write_text(assets / CONFIG, archive.config_text)
    return fitted(archive.tensors, own, path)
