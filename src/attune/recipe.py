"""The recipe is the experiment: what is computed, as one frozen value, checked once.

A recipe file is plain YAML. `base:` names another recipe file to start from, and `section.key=value` overrides have
the last word. Everything wrong with all of them is reported at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, GetPydanticSchema
from pydantic_core import core_schema

from attune import catalog, config
from attune.audio.settings import AugmentConfig
from attune.batches.settings import MixConfig, StreamConfig
from attune.catalog import Kind
from attune.contracts import Family, ModelSection, Section, TaskType
from attune.decoding.settings import DecodeConfig, unused_settings, without_former_search
from attune.errors import ConfigError
from attune.plain_yaml import (
    Node,
    Plain,
    Problems,
    describe,
    inline_yaml,
    join,
    merge,
    read_file,
    read_overrides,
    yaml_lines,
)
from attune.sources import shown, without_secrets
from attune.training.settings import AdaptConfig, OptimizerConfig, TrainConfig
from attune.trust import require_trusted

DEFAULT = "default"
MAX_SECONDS = 30.0
MOST_MICROS = 10_000  # each is computed in its turn, empty ones too

_STORE = re.compile(r"s3://[^/@:?#]+/[^?#]*[^/?#][^?#]*")
# A run may go on under another one of these when asked to; under anything else it would be another experiment.
SCHEDULE_KEYS = frozenset(
    {
        *("train.steps", "train.epochs", "train.warmup", "train.schedule", "train.restart_every", "train.patience"),
        *("train.anneal_factor", "train.anneal_threshold", "train.anneal_patience", "optimizer.lr"),
    }
)
# What is looked at, saved and logged, and how often: no weight depends on these, so a run may go on under others.
OBSERVED = ("train.save_every", "train.keep_last", "train.log_every", "train.track", "train.final_utterances")
OBSERVER_KEYS = frozenset({*OBSERVED, "data.retained"})
SCORE_KEYS = frozenset({"train.eval_every", "train.eval_utterances"})  # and `decode`, unless the learning rate does
# How a run uses its devices: nothing that it computes depends on these.
DEVICE_KEYS = frozenset({"train.shard", "train.offload"})

Manifests = tuple[Annotated[str, Field(min_length=1)], ...]
Count = Annotated[int, Field(gt=0, le=10**9)]
CHECKED = GetPydanticSchema(lambda source, handler: core_schema.any_schema())  # by the plug-in's own dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Which utterances to learn from and to score, by manifest."""

    train: Annotated[Manifests, Field(description="Training manifests.")] = ()
    mix: Annotated[MixConfig | None, Field(description="How to mix the training manifests.")] = None
    stream: Annotated[StreamConfig | None, Field(description="Training shards, instead of data.train.")] = None
    dev: Annotated[Manifests, Field(description="Manifests evaluated during training.")] = ()
    test: Annotated[Manifests, Field(description="Manifests evaluated at the end.")] = ()
    retained: Annotated[
        Manifests, Field(description="Manifests scored before and after training, to measure forgetting.")
    ] = ()
    max_seconds: Annotated[
        float | None,
        Field(gt=0, description="Skip longer utterances in training (default: 30, or no limit if long_rows is fail)."),
    ] = None
    min_seconds: Annotated[float, Field(ge=0, description="Skip shorter utterances in training.")] = 0.1
    bad_rows: Annotated[Literal["fail", "drop"], Field(description="Fail at an unusable row, or drop it.")] = "fail"
    long_rows: Annotated[
        Literal["fail", "drop", "split"] | None,
        Field(description="Rows too long for the model: as bad_rows, or split at pauses for scoring."),
    ] = None

    def __post_init__(self) -> None:
        # What is left out would not stop the run. A number is written out with a run's recipe, as other defaults are.
        if self.max_seconds is None and self.long_rows != "fail":
            object.__setattr__(self, "max_seconds", MAX_SECONDS)

    @property
    def longest_seconds(self) -> float:
        """The longest utterance that is trained on."""
        return math.inf if self.max_seconds is None else self.max_seconds

    @property
    def drops_long_rows(self) -> bool:
        """Whether training goes on without them: nothing tells which words belong to which piece."""
        return (self.long_rows or self.bad_rows) != "fail"


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """What to learn: a task by name, with its own settings."""

    name: str
    config: Annotated[Section, CHECKED]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """What learns: a model family by name, with its own settings."""

    family: str
    config: Annotated[ModelSection, CHECKED]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesConfig:
    """How an epoch is cut; the same on any number of devices."""

    micro_seconds: Annotated[float | None, Field(gt=0, description="Padded seconds of audio per micro-batch.")] = None
    micro_utterances: Annotated[Count | None, Field(description="Utterances per micro-batch.")] = None
    micros_per_step: Annotated[Count, Field(le=MOST_MICROS, description="Micro-batches per step (all devices).")] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One experiment; equal recipes compute the same."""

    run: Annotated[str, Field(min_length=1, description="Run folder, or s3://BUCKET/NAME.")]
    seed: Annotated[int, Field(ge=0, description="Random seed.")] = 0
    data: DataConfig
    task: TaskChoice
    model: ModelChoice
    adapt: AdaptConfig = field(default_factory=AdaptConfig)
    augment: AugmentConfig | None = None
    batches: BatchesConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    decode: DecodeConfig = field(default_factory=DecodeConfig)


@dataclass(frozen=True, slots=True)
class Choice:
    """A section where one key chooses a plug-in and the others are that plug-in's settings."""

    kind: Kind[TaskType[Section]] | Kind[Family[ModelSection]]
    chooser: str
    choice: type[TaskChoice] | type[ModelChoice]


SLOTS = {
    "task": Choice(catalog.TASKS, "name", TaskChoice),
    "model": Choice(catalog.FAMILIES, "family", ModelChoice),
}


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A recipe, and the tree of values it was read from."""

    recipe: Recipe
    tree: Node

    def origin(self, key: str) -> str:
        """Where the value of a dotted key came from: a file and line, `override` or `default`."""
        written = self.tree.find(key)
        return written.where if written else DEFAULT


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that two recipes do not agree on; None where one of them does not have it."""

    key: str
    old: Plain
    new: Plain

    def __str__(self) -> str:
        return f"{self.key}: {inline_yaml(self.old)} → {inline_yaml(self.new)}"


def load(path: Path, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """Read a recipe (a shipped one by name) with its bases and overrides; raises one ConfigError with all problems."""
    problems = Problems()
    path = catalog.recipe_path(path)
    written = _read(path, problems)
    tree = _put_on_top(written.tree, read_overrides(overrides, problems))
    require_trusted(tree, path)
    readers = {section: partial(_read_choice, slot) for section, slot in SLOTS.items()}
    values = config.parse_fields(tree, Recipe, problems, readers=readers)
    if written.is_whole:
        for key, message in _disagreements(values):
            problems.add(tree.nearest(key), key, message)
    else:
        # What seems to be missing may well stand in the file that could not be read.
        problems.found = [problem for problem in problems.found if problem.message != config.REQUIRED]
    problems.raise_all()
    return LoadedRecipe(Recipe(**values), tree)


def to_plain(recipe: Recipe) -> dict[str, Plain]:
    """The recipe as a file would hold it, every default written, and no signature or password of an address."""
    return {
        name: _without_secrets(value)
        for name, value in {
            **config.section_to_plain(recipe),
            "task": {"name": recipe.task.name, **config.section_to_plain(recipe.task.config)},
            "model": {"family": recipe.model.family, **config.section_to_plain(recipe.model.config)},
        }.items()
    }


def _without_secrets(value: Plain) -> Plain:
    if isinstance(value, dict):
        return {name: _without_secrets(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return without_secrets(shown(value)) if isinstance(value, str) else value


def resolved_yaml(recipe: Recipe) -> str:
    """The text of a recipe file that says everything, without base or defaults; it loads as an equal recipe."""
    return "".join(f"{line}\n" for line, _ in yaml_lines(to_plain(recipe)))


def differences(old: Recipe, new: Recipe) -> list[Difference]:
    """Every key whose value is not the same in both, in the order of the new recipe."""
    before, after = config.flatten(to_plain(old)), config.flatten(to_plain(new))
    changed = [key for key in {**after, **before} if before.get(key) != after.get(key)]
    return [Difference(key, before.get(key), after.get(key)) for key in changed]


@dataclass(frozen=True, slots=True)
class _Written:
    """The values of a recipe file and its bases; not whole when one of the files could not be read."""

    tree: Node
    is_whole: bool


def _read(path: Path, problems: Problems, above: tuple[Path, ...] = ()) -> _Written:
    tree = read_file(path, problems)
    if tree is None:
        return _Written(Node({}, str(path)), is_whole=False)
    own, base = tree.without("base"), tree.find("base")
    if base is None:
        return _Written(own, is_whole=True)
    base_path = _base_path(base, path, problems, (*above, path))
    if base_path is None:
        return _Written(own, is_whole=False)
    under = _read(base_path, problems, (*above, path))
    return _Written(_put_on_top(under.tree, own), under.is_whole)


def _base_path(base: Node, path: Path, problems: Problems, above: tuple[Path, ...]) -> Path | None:
    if not isinstance(base.value, str):
        problems.add(base.where, "base", f"expected the path of a recipe file, found {describe(base)}")
        return None
    base_path = path.parent / base.value
    if not base_path.is_file():
        problems.add(base.where, "base", f"no file {base_path}")
        return None
    if base_path.resolve() in [each.resolve() for each in above]:
        problems.add(base.where, "base", f"circular: {' → '.join(map(str, (*above, base_path)))}")
        return None
    return base_path


def _put_on_top(under: Node, over: Node) -> Node:
    """Merge, except that choosing another task, family or search leaves the settings of the former one behind."""
    for section, slot in SLOTS.items():
        former, chosen = (tree.find(f"{section}.{slot.chooser}") for tree in (under, over))
        if former and chosen and former.value != chosen.value:
            under = under.without(section)
    return merge(without_former_search(under, over), over)


def settings_of(plug_in: object) -> type[Section]:
    """The dataclass of a task's or a family's settings."""
    found = plug_in.config if isinstance(plug_in, Family) else getattr(plug_in, "Config", None)
    if not (isinstance(found, type) and is_dataclass(found)):
        raise ConfigError("its settings are missing: a frozen dataclass, Config of a task, config of a Family")
    return found


def _read_choice(slot: Choice, node: Node, key: str, problems: Problems) -> TaskChoice | ModelChoice | None:
    if not config.is_section(node, key, problems):
        return None
    chosen, chooser = node.find(slot.chooser), join(key, slot.chooser)
    if chosen is None or not isinstance(chosen.value, str):
        expected = config.REQUIRED if chosen is None else f"expected a name, found {describe(chosen)}"
        problems.add((chosen or node).where, chooser, expected)
        return None
    try:
        settings_type = settings_of(catalog.find(slot.kind, chosen.value))
    except ConfigError as error:
        problems.add(chosen.where, chooser, str(error))
        return None
    settings = config.parse(node.without(slot.chooser), settings_type, problems, key)
    return slot.choice(chosen.value, settings)  # type: ignore[arg-type]  # of the plug-in that was chosen


def _disagreements(sections: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong between values that are each right, as far as their sections could be read."""
    data: DataConfig | None = sections.get("data")
    batches: BatchesConfig | None = sections.get("batches")
    train: TrainConfig | None = sections.get("train")
    place = sections.get("run") or ""
    if "://" in place and not _STORE.fullmatch(place):
        yield "run", "must be a folder, or s3://BUCKET/NAME"
    if data:
        yield from _disagreements_in_data(data)
    if data and data.min_seconds >= data.longest_seconds:
        wrong = f"must be less than max_seconds ({data.longest_seconds:g}), found {data.min_seconds:g}"
        yield "data.min_seconds", wrong
    if data and (data.bad_rows, data.long_rows) == ("drop", "fail"):
        yield "data.long_rows", "long_rows: fail contradicts bad_rows: drop; remove one of them"
    if batches and (batches.micro_seconds is None) == (batches.micro_utterances is None):
        yield "batches", "set exactly one of micro_seconds and micro_utterances"
    if train:
        yield from _disagreements_in_training(train, has_dev=data is None or bool(data.dev))
        yield from _disagreements_in_sharing(train, sections.get("optimizer"))
    if train and train.epochs and data and data.stream:
        yield "train.epochs", "the length of a stream is unknown: set train.steps"
    decode: DecodeConfig | None = sections.get("decode")
    if decode:
        yield from unused_settings(decode)


def _disagreements_in_data(data: DataConfig) -> Iterator[tuple[str, str]]:
    if not data.train and data.stream is None:
        yield "data.train", "set manifests to train on, or data.stream"
    if data.train and data.stream:
        yield "data.stream", "replaces data.train; set one of them"
    if data.mix is None:
        return
    if (data.mix.weights is None) == (data.mix.temperature is None):
        yield "data.mix", "set exactly one of weights and temperature"
    if len(data.train) < 2:
        yield "data.mix", "needs two or more manifests in data.train"
    elif data.mix.weights and len(data.mix.weights) != len(data.train):
        found = len(data.mix.weights)
        yield "data.mix.weights", f"expected {len(data.train)}, one per entry of data.train; found {found}"


def _disagreements_in_training(train: TrainConfig, has_dev: bool) -> Iterator[tuple[str, str]]:
    if (train.steps is None) == (train.epochs is None):
        remedy = "set one of them" if train.steps is None else "remove one, e.g. with train.epochs=null"
        yield "train", f"set exactly one of steps and epochs: {remedy}"
    if train.restart_every and train.schedule in ("constant", "inverse_sqrt", "newbob"):
        yield "train.restart_every", f"the schedule {train.schedule} has nothing to restart"
    if train.anneals and train.keep_best is None:
        yield "train.schedule", "newbob needs train.keep_best, the dev score that it follows"
    yield from schedule_problems(train)
    if train.eval_every and not has_dev:
        yield "train.eval_every", "nothing to evaluate: set data.dev"
    if train.eval_utterances and not train.eval_every:
        yield "train.eval_utterances", "needs train.eval_every"
    if train.average and train.average > train.keep_last:
        yield "train.average", f"needs as many checkpoints: raise keep_last (now {train.keep_last})"
    if train.patience and train.keep_best is None:
        yield "train.patience", "needs train.keep_best, the score to improve"
    if train.keep_best is None:
        return
    if not train.keep_best.startswith("dev."):
        yield "train.keep_best", f"expected a dev score such as dev.wer, found {train.keep_best!r}"
    if train.eval_every is None or not has_dev:
        yield "train.keep_best", "needs train.eval_every and data.dev"


def schedule_problems(train: TrainConfig) -> Iterator[tuple[str, str]]:
    """What does not fit into the number of steps, once that is known."""
    for name in ("warmup", "restart_every"):
        span: int | None = getattr(train, name)
        if span and train.steps is not None and span >= train.steps:
            yield f"train.{name}", f"must be less than steps ({train.steps}), found {span}"


def is_observer(key: str, train: TrainConfig) -> bool:
    """Whether a key only says what is looked at and how: a run may go on under another value."""
    is_about_scores = key in SCORE_KEYS or key.startswith("decode.")
    return not train.anneals if is_about_scores else key in OBSERVER_KEYS


def _disagreements_in_sharing(train: TrainConfig, optimizer: OptimizerConfig | None) -> Iterator[tuple[str, str]]:
    if train.offload and not train.shares_weights:
        yield "train.offload", "needs `shard: full` or `shard: gradients`"
    if not train.shares_weights:
        return
    for name in (["strict"] if train.strict else []) + ([optimizer.name] if optimizer else []):
        if name in ("strict", "adafactor", "bitsandbytes"):
            yield "train.shard", f"{train.shard} does not work with {name}; use `shard: optimizer`"
    if optimizer and optimizer.name == "adamw8bit" and train.offload:
        yield "train.offload", "does not work with adamw8bit; use adamw"
