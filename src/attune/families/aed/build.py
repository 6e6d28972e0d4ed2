"""From files or a preset to a model, with the codec that turns utterances into tokens and tokens into text."""

from dataclasses import replace
from pathlib import Path

from attune.contracts import Limits, Task, TaskModel
from attune.errors import ConfigError
from attune.families.aed.model import AedModel
from attune.families.aed.settings import AedConfig
from attune.families.aed.shape import PRESETS, read_shape
from attune.families.aed.vocabulary import END, own_codec, task_codec

MAX_SECONDS = 30.0  # attention that is trained on less loses its way


def build_aed(config: AedConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` or the config describe, with random weights."""
    shape = read_shape(assets) or (PRESETS[config.size] if config.size else None)
    if shape is None:
        raise ConfigError("The weights do not define their architecture. Set model.size as in their recipe.")
    if config.tokens == "own":
        codec = own_codec(assets, task, shape.begin, shape.end)
    else:
        codec, shape = task_codec(task), replace(shape, begin=END, end=END)
    model = AedModel(replace(shape, tokens=len(codec.pieces)), config)
    return TaskModel(model=model, codec=codec, scorer="tokens", limits=Limits(MAX_SECONDS))
