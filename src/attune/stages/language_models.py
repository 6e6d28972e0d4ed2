"""A language model's run or folder as what a beam search fuses."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from attune.contracts import FusableModel, TaskModel
from attune.errors import ModelError
from attune.stages.pretrained import build_model, load_weights, open_pretrained
from attune.types import LanguageModel


def read_neural_lm(folder: Path, searched: TaskModel, device: torch.device) -> LanguageModel:
    """The language model of a run or a model folder, whose tokens must be those of the model that is searched."""
    found = open_pretrained(folder)
    loaded = build_model(found.recipe, found.folders.task, found.folders.assets)
    model = loaded.task_model.model
    if not isinstance(model, FusableModel):
        raise ModelError(f"decode.lm: {folder} is not a language model (its task is {found.recipe.task.name}).")
    ours, theirs = tuple(searched.codec.pieces), tuple(loaded.task_model.codec.pieces)
    first = 1 if searched.scorer == "transducer" else 0  # its blank comes last, and the task's first
    if ours != theirs[first:]:
        raise ModelError(
            f"decode.lm: {folder} has other tokens ({len(theirs)}, {_fingerprint(theirs)}) than this model "
            f"({len(ours)}, {_fingerprint(ours)}). Train it with the same task.tokenizer."
        )
    load_weights(loaded.task_model.module, found.tensors(), found.weights)
    loaded.task_model.module.to(device).eval()
    return model.language_model(first)


def _fingerprint(pieces: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(pieces).encode()).hexdigest()[:8]
