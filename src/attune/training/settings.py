"""What a recipe says about training, and which weights learn; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attune.types import Precision

MOST_STEPS = 10**9  # beyond it, numbers are mistakes, and some no longer fit into what computes with them
Count = Annotated[int, Field(gt=0, le=MOST_STEPS)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Patterns = tuple[Annotated[str, Field(min_length=1)], ...]

BETAS = (0.9, 0.98)
ANNEAL_FACTOR, ANNEAL_THRESHOLD, ANNEAL_PATIENCE = 0.8, 0.0025, 0  # of NewBob, as in SpeechBrain's LibriSpeech recipe
RANK, ALPHA, DROPOUT, TARGETS = 16, 32.0, 0.0, None  # of LoRA
FORMER_TARGETS = ("q_proj", "v_proj")  # the default that recipes of runs have written out


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptConfig:
    """Which weights learn.

    A pattern names a part of the model by the end of its dotted name, and `*` stands for anything: `encoder`,
    `decoder.layers.0`, `encoder.layers.[0-3]`, `*norm*`.
    """

    method: Annotated[Literal["full", "lora"], Field(description="Train all weights, or LoRA adapters.")] = "full"
    freeze: Annotated[Patterns, Field(description="Parts to freeze, e.g. encoder.")] = ()
    last_layers: Annotated[
        int | None,
        Field(ge=0, description="Train only the last N layers of each stack, and the layers after it."),
    ] = None
    rank: Annotated[int, Field(gt=0, le=65_536, description="LoRA rank.")] = RANK
    alpha: Annotated[float, Field(gt=0, le=1e6, description="LoRA scaling: alpha / rank.")] = ALPHA
    dropout: Annotated[float, Field(ge=0, lt=1, description="LoRA dropout.")] = DROPOUT
    targets: Annotated[
        Annotated[Patterns, Field(min_length=1)] | None,
        Field(description="Linear layers that get LoRA adapters (default: the family's own)."),
    ] = TARGETS

    def __post_init__(self) -> None:
        if self.method != "lora" and self.targets == FORMER_TARGETS:
            object.__setattr__(self, "targets", TARGETS)
        lora = (self.rank, self.alpha, self.dropout, self.targets)
        if self.method != "lora" and lora != (RANK, ALPHA, DROPOUT, TARGETS):
            raise ValueError("rank, alpha, dropout and targets need `method: lora`; set it, or remove them")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """How the weights follow the gradients."""

    name: Annotated[
        Literal["adamw", "adamw8bit", "bitsandbytes", "adafactor", "adadelta"],
        Field(
            description="Optimizer: bitsandbytes is that package's 8-bit AdamW, adamw8bit attune's own; adafactor "
            "uses lr as it is, without relative steps; adadelta (rho 0.95) usually has lr 1."
        ),
    ] = "adamw"
    lr: Annotated[float, Field(gt=0, le=100, description="Peak learning rate, reached after the warmup.")]
    weight_decay: Annotated[
        float, Field(ge=0, le=100, description="Weight decay of matrices; biases and norms have none.")
    ] = 0.0
    betas: Annotated[tuple[Beta, Beta], Field(description="AdamW betas.")] = BETAS
    layer_decay: Annotated[
        float | None, Field(gt=0, le=1, description="Learning rate factor per layer, counted from the output down.")
    ] = None

    def __post_init__(self) -> None:
        if self.name in ("adafactor", "adadelta") and self.betas != BETAS:
            raise ValueError(f"{self.name} has no betas; remove them")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How long to train, how exactly, and what to keep."""

    steps: Annotated[Count | None, Field(description="Number of optimizer steps; set this or epochs.")] = None
    epochs: Annotated[
        float | None,
        Field(gt=0, le=MOST_STEPS, description="Passes over the training set, instead of steps."),
    ] = None
    warmup: Annotated[int, Field(ge=0, le=MOST_STEPS, description="Steps of linear warmup.")] = 0
    schedule: Annotated[
        Literal["linear", "cosine", "constant", "inverse_sqrt", "newbob"],
        Field(
            description="Learning rate schedule after the warmup; inverse_sqrt falls with the square root of the step "
            "(Noam), newbob anneals when keep_best stops improving."
        ),
    ] = "linear"
    anneal_factor: Annotated[
        float, Field(gt=0, lt=1, description="Factor by which newbob anneals the learning rate.")
    ] = ANNEAL_FACTOR
    anneal_threshold: Annotated[
        float, Field(ge=0, lt=1, description="Smallest relative improvement of keep_best that counts for newbob.")
    ] = ANNEAL_THRESHOLD
    anneal_patience: Annotated[
        int, Field(ge=0, le=MOST_STEPS, description="Evaluations without improvement before newbob anneals.")
    ] = ANNEAL_PATIENCE
    restart_every: Annotated[Count | None, Field(description="Restart the schedule every N steps.")] = None
    precision: Annotated[Precision, Field(description="Precision of training.")] = "fp32"
    compile: Annotated[bool, Field(description="Compile the model: a minute at the start, faster steps on a GPU.")] = (
        False
    )
    clip: Annotated[float, Field(gt=0, description="Largest gradient norm (gradient clipping).")] = 1.0
    strict: Annotated[bool, Field(description="Same bits on any number of devices, at some cost in speed.")] = False
    shard: Annotated[
        Literal["none", "optimizer", "gradients", "full"],
        Field(
            description="Shard the optimizer state over the ranks (ZeRO-1), the gradients too (ZeRO-2), or the weights "
            "too (ZeRO-3, FSDP)."
        ),
    ] = "none"
    offload: Annotated[
        bool,
        Field(description="Keep weights, gradients and optimizer state in host memory; needs shard gradients or full."),
    ] = False
    eval_every: Annotated[Count | None, Field(description="Evaluate on the dev sets every N steps.")] = None
    eval_utterances: Annotated[
        Count | None, Field(description="Evaluate on N dev utterances, chosen by the seed; the final scores use all.")
    ] = None
    final_utterances: Annotated[
        Count | None, Field(description="Score N utterances of each set at the end, chosen by the seed (default: all).")
    ] = None
    save_every: Annotated[Count, Field(description="Save a checkpoint every N steps.")] = 500
    keep_last: Annotated[Count, Field(description="Number of newest checkpoints to keep.")] = 2
    keep_best: Annotated[str | None, Field(description="Keep the best checkpoint by this dev score, e.g. dev.wer.")] = (
        None
    )
    patience: Annotated[
        Count | None, Field(description="Stop early after N evaluations without a better keep_best.")
    ] = None
    average: Annotated[
        Count | None, Field(description="Export the average of the N newest checkpoints instead of the best one.")
    ] = None
    log_every: Annotated[Count, Field(description="Log every N steps.")] = 10
    track: Annotated[
        tuple[Annotated[str, Field(pattern=r"^\w+$")], ...] | None,
        Field(description="Trackers beside log.jsonl: tensorboard, wandb, mlflow (default: tensorboard if installed)."),
    ] = None
    nonfinite_patience: Annotated[
        Count, Field(description="Stop after N steps in a row with a non-finite loss or gradient.")
    ] = 5

    @property
    def shares_weights(self) -> bool:
        """Whether a rank has slices of the tensors between two steps."""
        return self.shard in ("gradients", "full")

    @property
    def anneals(self) -> bool:
        """Whether the learning rate depends on the dev scores."""
        return self.schedule == "newbob"

    @property
    def last_step(self) -> int:
        """The number of steps, where it is known: `stages.data.with_steps` derives it from epochs."""
        if self.steps is None:
            raise RuntimeError("the steps of train.epochs are not derived yet")
        return self.steps
