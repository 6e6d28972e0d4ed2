"""What a recipe says about a transducer; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Duration = Annotated[int, Field(ge=0, le=1000)]


@dataclass(frozen=True, slots=True)
class TransducerConfig:
    """Which weights or, to begin from nothing, which architecture; and how it is trained."""

    weights: Annotated[str | None, Field(description="A .nemo file, a model folder or a run to start from.")] = None
    encoder: Annotated[
        Literal["contextnet", "conformer", "fastconformer"] | None,
        Field(description="The encoder of a model that a .nemo file does not describe."),
    ] = None
    size: Annotated[
        Literal["large", "medium", "small", "shallow", "dummy"] | None,
        Field(
            description="How large that model is: 115 to 145, 31 to 41 or 14 million weights; shallow, to begin from "
            "nothing with little data: 10 to 20 million in few layers; dummy is to try things."
        ),
    ] = None
    prediction: Annotated[
        Literal["lstm", "stateless"],
        Field(description="That model's prediction net: an LSTM, or the last two labels and nothing else."),
    ] = "lstm"
    durations: Annotated[
        tuple[Duration, ...], Field(description="How many frames that model's tokens may take (TDT), such as 0 to 4.")
    ] = ()
    tokens: Annotated[
        Literal["own", "task"],
        Field(description="The pretrained model's own tokens, or those of the task; rows are kept by their piece."),
    ] = "own"
    fastemit: Annotated[
        float | None,
        Field(ge=0, le=1000, description="How much labels are hurried (FastEmit); else as the model was made."),
    ] = None
    batch_norm: Annotated[
        Literal["trained", "frozen"], Field(description="Whether the norms' statistics follow the data or stay.")
    ] = "trained"
    joint_cells: Annotated[
        int | None,
        Field(
            gt=0, le=2**62, description="Cells of the lattice whose outputs are in memory at once; else as is quickest."
        ),
    ] = None
    gradient_checkpointing: Annotated[bool, Field(description="Less memory for a third more computation.")] = False

    def __post_init__(self) -> None:
        if self.weights is None and self.tokens == "own":
            raise ValueError("a model without weights has no tokens of its own; write `tokens: task`")
        if (self.encoder is None) != (self.size is None):
            raise ValueError("give both `encoder` and `size`, or neither")
        if self.weights is None and self.encoder is None:
            raise ValueError("give `weights` to start from, or `encoder` and `size` of a new model")
        if self.durations and not {0, 1} <= set(self.durations):
            raise ValueError("`durations` need a 0 and a 1: without them some utterances cannot be aligned at all")
