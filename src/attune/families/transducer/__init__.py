"""Transducers: ContextNet, Conformer and FastConformer encoders, RNN-T and TDT; NVIDIA's `.nemo` files in and out.

A pretrained model has its own vocabulary, or is given the task's (`tokens: task`); a new one has the task's.
"""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from attune.contracts import (
    Exporters,
    Family,
    ImportedCheckpoint,
    Importer,
    RemappedWeights,
    SpeechModel,
    Task,
    TaskModel,
    VocabularyRules,
)
from attune.families.transducer.settings import TransducerConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from attune.families.transducer.model import TransducerModel


def build(config: TransducerConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` or the config describe, with random weights."""
    from attune.families.transducer.build import build_transducer

    return build_transducer(config, task, assets)


def read(config: TransducerConfig, path: Path, assets: Path) -> ImportedCheckpoint:
    """A `.nemo` file."""
    from attune.families.transducer.weights import import_weights

    return ImportedCheckpoint(import_weights(path, assets))


def export(model: SpeechModel, assets: Path, folder: Path) -> None:
    """Add model.nemo, for NeMo."""
    from attune.families.transducer.weights import export_nemo

    export_nemo(cast("TransducerModel", model), assets, folder)


def to_transformers(model: SpeechModel, folder: Path, to: Path) -> None:
    """Write an exported FastConformer as a Parakeet."""
    from attune.families.transducer.parakeet import write_parakeet
    from attune.families.transducer.vocabulary import sentencepiece_of

    write_parakeet(cast("TransducerModel", model), sentencepiece_of(folder / "task", folder / "assets"), to)


def remap_vocabulary(model: SpeechModel, tensors: "Mapping[str, Tensor]", task: Path, assets: Path) -> RemappedWeights:
    """Move pretrained rows to where the model has their tokens."""
    from attune.families.transducer.rows import move_rows

    return move_rows(cast("TransducerModel", model), tensors, task, assets)


FAMILY = Family(
    config=TransducerConfig,
    build=build,
    importer=Importer(lambda path: path.suffix.lower() == ".nemo", read),
    exporters=Exporters(beside=export, beside_has_weights=True, to_transformers=to_transformers),
    vocabulary=VocabularyRules(is_own=lambda config: config.tokens == "own", remap=remap_vocabulary),
    architecture_settings=("encoder", "size", "prediction", "durations", "look_aheads", "tokens"),
    lora_targets=(("linear_q", "linear_v"), ("joint.enc", "joint.pred")),  # ContextNet has no attention
    takes="tokens",
)
