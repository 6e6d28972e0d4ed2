"""What a recipe says about a transducer; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Duration = Annotated[int, Field(ge=0, le=1000)]


@dataclass(frozen=True, slots=True)
class TransducerConfig:
    """Which weights or, to begin from nothing, which architecture; and how it is trained."""

    weights: Annotated[str | None, Field(description=".nemo file, model folder or run to start from.")] = None
    encoder: Annotated[
        Literal["contextnet", "conformer", "fastconformer"] | None,
        Field(description="Encoder of a new model (without a .nemo file)."),
    ] = None
    size: Annotated[
        Literal["large", "medium", "small", "shallow", "tiny", "dummy"] | None,
        Field(
            description="Size of a new model: 115 to 145, 31 to 41 or 14 million weights; shallow: 10 to 20 "
            "million in few layers, for training from scratch with little data; tiny: under a million, to try things "
            "on a CPU; dummy: for tests."
        ),
    ] = None
    prediction: Annotated[
        Literal["lstm", "stateless"],
        Field(description="Prediction net of a new model: an LSTM, or stateless (the last two labels)."),
    ] = "lstm"
    durations: Annotated[
        tuple[Duration, ...], Field(description="Token durations of a new TDT model in frames, e.g. 0 to 4.")
    ] = ()
    look_aheads: Annotated[
        tuple[Duration, ...],
        Field(
            description="Look-aheads of a new streaming FastConformer, in frames of 80 ms, e.g. 13, 6, 1, 0. "
            "Training draws one for each micro-batch.",
            json_schema_extra={"since": "0.2"},
        ),
    ] = ()
    look_ahead: Annotated[
        int | None,
        Field(
            ge=0,
            description="Look-ahead of a streaming model, in frames (default: its first).",
            json_schema_extra={"since": "0.2"},
        ),
    ] = None
    tokens: Annotated[
        Literal["own", "task"],
        Field(description="Tokens of the pretrained model, or of the task; embeddings of shared pieces are kept."),
    ] = "own"
    fastemit: Annotated[
        float | None, Field(ge=0, le=1000, description="FastEmit weight: emit tokens earlier (default: the model's).")
    ] = None
    batch_norm: Annotated[
        Literal["trained", "frozen"], Field(description="Update the batch norm statistics in training, or freeze them.")
    ] = "trained"
    joint_cells: Annotated[
        int | None,
        Field(gt=0, le=2**62, description="Lattice cells in memory at once (default: the fastest)."),
    ] = None
    gradient_checkpointing: Annotated[bool, Field(description="Less memory for a third more computation.")] = False

    def __post_init__(self) -> None:
        if self.weights is None and self.tokens == "own":
            raise ValueError("a model without weights has no tokens of its own; set `tokens: task`")
        if (self.encoder is None) != (self.size is None):
            raise ValueError("set both `encoder` and `size`, or neither")
        if self.weights is None and self.encoder is None:
            raise ValueError("set `weights` to start from, or `encoder` and `size` of a new model")
        if self.look_aheads and self.encoder != "fastconformer":
            raise ValueError("`look_aheads` are for `encoder: fastconformer`")
        if self.durations and not {0, 1} <= set(self.durations):
            raise ValueError("`durations` need a 0 and a 1; without them some utterances cannot be aligned")
