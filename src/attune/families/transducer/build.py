"""From files to a model, with the codec that turns utterances into labels and labels into text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from attune.contracts import FrameTimes, Limits, Task, TaskModel
from attune.errors import ConfigError
from attune.families._conformer import Conformer
from attune.families.transducer.archive import resolved
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.presets import preset
from attune.families.transducer.settings import TransducerConfig
from attune.families.transducer.shape import TransducerShape, read_shape
from attune.families.transducer.vocabulary import own_codec, read_config, task_codec
from attune.plain_yaml import Plain

# Attention takes memory by the square of it, and all encoders learned from shorter ones. A row of a manifest that is
# longer still goes in whole, in training and evaluation, unless data.long_rows is split.
MAX_SECONDS = 60.0


def build_transducer(config: TransducerConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` or the config describe, with fresh weights."""
    codec = own_codec(assets, task) if config.tokens == "own" else task_codec(task)
    described = description(config, assets)
    model = TransducerModel(
        _shape(config, described),
        codec.pieces,
        described,
        is_frozen=config.batch_norm == "frozen",
        saves_memory=config.gradient_checkpointing,
        joint_cells=config.joint_cells,
    )
    if config.look_ahead is not None:
        _choose_look_ahead(model, config.look_ahead)
    return TaskModel(
        model=model,
        codec=codec,
        scorer="transducer",
        limits=Limits(MAX_SECONDS),
        times=FrameTimes(model.seconds_per_frame),
    )


def _choose_look_ahead(model: TransducerModel, look_ahead: int) -> None:
    context = model.encoder.context if isinstance(model.encoder, Conformer) else None
    if context is None:
        raise ConfigError("model.look_ahead is for streaming models; this one needs whole utterances. Remove it.")
    if look_ahead not in context.look_aheads:
        known = ", ".join(map(str, context.look_aheads))
        raise ConfigError(f"model.look_ahead={look_ahead}: this model was trained for {known}.")
    model.encoder.look_ahead = look_ahead


def description(config: TransducerConfig, assets: Path) -> dict[str, Plain]:
    """NeMo's configuration of the model: the one that came with the weights, or that of the config's size."""
    described = read_config(assets)
    if described is not None and _of_new_models(config) != (None, "lstm", (), ()):
        raise ConfigError(
            "The weights define their architecture. Remove model.encoder, model.size, model.prediction, "
            "model.durations and model.look_aheads."
        )
    if described is None and config.size is None:
        raise ConfigError("The weights do not define their architecture. Set model.encoder and model.size.")
    return preset(config) if described is None else resolved(described)


def _of_new_models(config: TransducerConfig) -> tuple[object, ...]:
    return config.size, config.prediction, config.durations, config.look_aheads


def _shape(config: TransducerConfig, described: Mapping[str, Plain]) -> TransducerShape:
    shape = read_shape(described)
    return shape if config.fastemit is None else replace(shape, loss=replace(shape.loss, fastemit=config.fastemit))
