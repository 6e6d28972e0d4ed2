"""NeMo's Conformer encoders, such as Parakeet's FastConformer (arXiv 2305.05084). 80 ms, 25 layers of 1024 (0.6B)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attune.families.ssl.upstream import Upstream, UpstreamType

if TYPE_CHECKING:
    from torch import Tensor


def build(assets: Path) -> Upstream:
    """The encoder that the files in `assets` describe."""
    from attune.families.ssl.nemo_encoder import build_nemo

    return build_nemo(assets)


def read(path: Path, assets: Path) -> "Mapping[str, Tensor]":
    """A `.nemo` file of a transducer, also a hybrid one."""
    from attune.families.ssl.nemo_encoder import read_nemo

    return read_nemo(path, assets)


UPSTREAM = UpstreamType(build, read)
