"""What a recipe says about training, and which weights learn; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attune.types import Precision

Count = Annotated[int, Field(gt=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Patterns = tuple[Annotated[str, Field(min_length=1)], ...]

BETAS = (0.9, 0.98)
RANK, ALPHA, DROPOUT, TARGETS = 16, 32.0, 0.0, ("q_proj", "v_proj")  # of LoRA


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptConfig:
    """Which weights learn.

    A pattern names a part of the model by the end of its dotted name, and `*` stands for anything: `encoder`,
    `decoder.layers.0`, `encoder.layers.[0-3]`, `*norm*`.
    """

    method: Annotated[
        Literal["full", "lora"], Field(description="Train the weights themselves, or low-rank additions to them.")
    ] = "full"
    freeze: Annotated[Patterns, Field(description="Parts that stay as they are, such as encoder.")] = ()
    last_layers: Annotated[
        int | None,
        Field(ge=0, description="Train this many last layers of each stack of layers, and what comes after the stack."),
    ] = None
    rank: Annotated[int, Field(gt=0, description="LoRA: the rank of the additions.")] = RANK
    alpha: Annotated[float, Field(gt=0, description="LoRA: the additions are scaled by alpha / rank.")] = ALPHA
    dropout: Annotated[float, Field(ge=0, lt=1, description="LoRA: dropout on what the additions see.")] = DROPOUT
    targets: Annotated[Patterns, Field(min_length=1, description="LoRA: the linear layers that get additions.")] = (
        TARGETS
    )

    def __post_init__(self) -> None:
        lora = (self.rank, self.alpha, self.dropout, self.targets)
        if self.method != "lora" and lora != (RANK, ALPHA, DROPOUT, TARGETS):
            raise ValueError("rank, alpha, dropout and targets are LoRA's: set `method: lora`, or leave them out")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """How the weights follow the gradients."""

    name: Annotated[
        Literal["adamw", "adamw8bit", "bitsandbytes", "adafactor"],
        Field(description="The optimizer; bitsandbytes is that package's 8-bit AdamW, adamw8bit attune's own."),
    ] = "adamw"
    lr: Annotated[float, Field(gt=0, description="The highest learning rate, reached after the warmup.")]
    weight_decay: Annotated[float, Field(ge=0, description="For matrices; biases and norms never decay.")] = 0.0
    betas: Annotated[tuple[Beta, Beta], Field(description="AdamW's memory of gradients and their squares.")] = BETAS
    layer_decay: Annotated[
        float | None, Field(gt=0, le=1, description="Each layer nearer the input learns this much more slowly.")
    ] = None

    def __post_init__(self) -> None:
        if self.name == "adafactor" and self.betas != BETAS:
            raise ValueError("betas are AdamW's, and adafactor has none: leave them out")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How long to train, how exactly, and what to keep."""

    steps: Annotated[Count | None, Field(description="Optimizer steps in all. Give this or epochs.")] = None
    epochs: Annotated[
        float | None,
        Field(gt=0, description="Passes over the training set, instead of steps.", json_schema_extra={"since": "0.2"}),
    ] = None
    warmup: Annotated[int, Field(ge=0, description="Steps over which the learning rate rises.")] = 0
    schedule: Annotated[
        Literal["linear", "cosine", "constant"], Field(description="How the learning rate falls after the warmup.")
    ] = "linear"
    restart_every: Annotated[
        Count | None, Field(description="Steps after which the schedule begins anew, again and again.")
    ] = None
    precision: Annotated[Precision, Field(description="What the model computes in.")] = "fp32"
    compile: Annotated[
        bool, Field(description="Compile the model's layers first: a minute at the start, quicker steps on a GPU.")
    ] = False
    clip: Annotated[float, Field(gt=0, description="The largest norm of the gradient.")] = 1.0
    strict: Annotated[bool, Field(description="The same bits on any number of devices, for some speed.")] = False
    shard: Annotated[
        Literal["none", "optimizer", "full"],
        Field(description="What ranks share out instead of each having all: the optimizer's state, or weights too."),
    ] = "none"
    eval_every: Annotated[Count | None, Field(description="Steps between two scorings of the dev sets.")] = None
    eval_utterances: Annotated[
        Count | None, Field(description="Score so many dev utterances, chosen by the seed; the final scores have all.")
    ] = None
    save_every: Annotated[Count, Field(description="Steps between two checkpoints.")] = 500
    keep_last: Annotated[Count, Field(description="How many of the newest checkpoints stay.")] = 2
    keep_best: Annotated[
        str | None, Field(description="The dev score whose best checkpoint stays, such as dev.wer.")
    ] = None
    patience: Annotated[
        Count | None, Field(description="Scorings in a row without a better keep_best before training ends early.")
    ] = None
    average: Annotated[
        Count | None, Field(description="Export the mean of so many of the newest checkpoints, instead of the best.")
    ] = None
    log_every: Annotated[Count, Field(description="Steps between two lines of the log.")] = 10
    nonfinite_patience: Annotated[
        Count, Field(description="Steps in a row with a non-finite loss or gradient before training stops.")
    ] = 5

    @property
    def last_step(self) -> int:
        """The number of steps, where it is known: `stages.data.with_steps` derives it from epochs."""
        if self.steps is None:
            raise RuntimeError("the steps of train.epochs are not derived yet")
        return self.steps
