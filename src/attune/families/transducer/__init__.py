"""Transducers: ContextNet, Conformer and FastConformer encoders, RNN-T and TDT; NVIDIA's `.nemo` files in and out.

A pretrained model brings its own tokens, or takes on the task's (`tokens: task`); a new one has the task's.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attune.families.transducer.settings import TransducerConfig
from attune.types import Family, RemappedWeights, Task, TaskModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def build(config: TransducerConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` or the config describe, with fresh weights."""
    from attune.families.transducer.build import build_transducer

    return build_transducer(config, task, assets)


def import_checkpoint(config: TransducerConfig, path: Path, assets: Path) -> "Mapping[str, Tensor]":
    """Weights from a `.nemo` file."""
    from attune.families.transducer.weights import import_weights

    return import_weights(path, assets)


def export(model: Any, assets: Path, folder: Path) -> None:
    """Add model.nemo, for NeMo."""
    from attune.families.transducer.weights import export_nemo

    export_nemo(model, assets, folder)


def to_transformers(model: Any, folder: Path, to: Path) -> None:
    """Write an exported FastConformer as a Parakeet."""
    from attune.families.transducer.parakeet import write_parakeet
    from attune.families.transducer.vocabulary import sentencepiece_of

    write_parakeet(model, sentencepiece_of(folder / "task", folder / "assets"), to)


def remap_vocabulary(model: Any, tensors: "Mapping[str, Tensor]", task: Path, assets: Path) -> RemappedWeights:
    """Move pretrained rows to where the model has their tokens."""
    from attune.families.transducer.rows import move_rows

    return move_rows(model, tensors, task, assets)


__all__ = ["FAMILY", "TransducerConfig"]

FAMILY = Family(
    config=TransducerConfig,
    build=build,
    recognizes=lambda path: path.suffix.lower() == ".nemo",
    import_checkpoint=import_checkpoint,
    export=export,
    to_transformers=to_transformers,
    has_own_vocabulary=lambda config: config.tokens == "own",
    architecture_settings=("encoder", "size", "prediction", "durations", "tokens"),
    remap_vocabulary=remap_vocabulary,
)
