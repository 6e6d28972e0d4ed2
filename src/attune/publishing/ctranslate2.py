"""Whisper for CTranslate2, which faster-whisper loads: converted, and compared with the model it was made from."""

import importlib
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from attune.contracts import TaskModel
from attune.decoding.search import Search, decode_batch
from attune.errors import ModelError
from attune.families.whisper.features import log_mel
from attune.families.whisper.model import WhisperModel
from attune.files import explain_write_errors, sync
from attune.loading.pretrained import export, locate_model, open_pretrained
from attune.publishing.conversion import ConversionCheck, synthetic_batch
from attune.run import Run
from attune.site import Site
from attune.stages.eval_target import load_eval_target
from attune.types import require_hypothesis
from attune.world import World

FILES = ("tokenizer.json", "preprocessor_config.json")  # what faster-whisper reads beside the weights
ROUNDING = 2e-2  # of encoder states, whose values reach some tens


def convert_whisper(model: TaskModel, folder: Path, to: Path) -> ConversionCheck:
    """Write a Whisper folder of transformers as CTranslate2 has it; refused where the two do not agree."""
    whisper = require_whisper(model)
    converters = _package("ctranslate2.converters")
    files = [name for name in FILES if (folder / name).is_file()]
    converters.TransformersConverter(str(folder), copy_files=files).convert(str(to))
    return _compare(model, whisper, _package("ctranslate2").models.Whisper(str(to), compute_type="float32"))


def require_whisper(model: TaskModel) -> WhisperModel:
    """The model, where CTranslate2 has one like it."""
    if not isinstance(model.model, WhisperModel):
        raise ModelError("--for-ctranslate2 works with Whisper models only. Remove it.")
    if model.model.window != "full":
        raise ModelError(
            "CTranslate2 pads audio to 30 s, but this model was trained with model.window=trimmed. Train with full."
        )
    return model.model


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModelError("--for-ctranslate2 needs a package. Run: pip install 'attune-speech[ct2]'") from error


def _compare(model: TaskModel, whisper: WhisperModel, converted: Any) -> ConversionCheck:
    """Refuse a conversion that computes other states or finds other tokens."""
    whisper.eval()
    batch = synthetic_batch(model)
    with torch.inference_mode():
        mels = log_mel(batch.audio, batch.lengths, whisper.shape.mels, 2 * whisper.shape.source_positions)
        states = whisper.encode(batch)[1].numpy()
        ours = [require_hypothesis(each).tokens for each in decode_batch(model, batch, Search())]
        prompts = cast(Any, whisper.scorer(batch)).prefixes
    view = _package("ctranslate2").StorageView.from_array(np.ascontiguousarray(mels.numpy()))
    theirs = converted.encode(view, to_cpu=True)
    largest = float(np.abs(np.array(theirs) - states).max())
    positions = whisper.shape.target_positions
    never = list(whisper.rules.never)  # CTranslate2 itself lets a model emit timestamps that were not asked for
    results = converted.generate(view, prompts, beam_size=1, max_length=positions, suppress_tokens=never)
    found = [tuple(each.sequences_ids[0]) for each in results]
    first = slice(positions // 2)  # where CTranslate2 stops
    differing = sum(own[first] != other[first] for own, other in zip(ours, found, strict=True))
    if differing or largest > ROUNDING:
        raise ModelError(
            f"The converted model differs: {differing} of {len(ours)} hypotheses differ, encoder states by up "
            f"to {largest:.1e}. Nothing was written; use another version of ctranslate2."
        )
    return ConversionCheck(len(ours), largest)


def export_ctranslate2(source: str, to: Path, site: Site) -> ConversionCheck:
    """Write a run's model as a folder for CTranslate2; it appears whole, once it has been compared."""
    if to.exists():
        raise ModelError(f"{to} already exists. Choose another folder.")
    pretrained = open_pretrained(locate_model(source, site.cache))
    model = load_eval_target(pretrained, site, World.alone()).task_model
    require_whisper(model)
    with explain_write_errors(to, "Choose another folder.", ModelError):
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=".") as scratch:
            folder, converted = Path(scratch) / "model", Path(scratch) / "converted"
            export(folder, pretrained.recipe, Run(pretrained.folders.task.parent), model)
            found = convert_whisper(model, folder, converted)
            sync(converted)
            converted.rename(to)
    return found
