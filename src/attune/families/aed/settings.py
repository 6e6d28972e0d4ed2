"""What a recipe says about an attention encoder-decoder; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

EPOCHS_COUNTED = 2
Size = Literal[
    "librispeech",
    "transformer",
    "conformer-small",
    "conformer-large",
    "small",
    "tiny",
    "tiny-transformer",
    "tiny-conformer",
]


@dataclass(frozen=True, slots=True)
class AedConfig:
    """Which weights or, to begin from nothing, how large a model; and how it is trained."""

    weights: Annotated[
        str | None, Field(description="A folder of SpeechBrain's, a model folder or a run to start from.")
    ] = None
    size: Annotated[
        Size | None,
        Field(
            description="The size of a new model, as in SpeechBrain's LibriSpeech recipes: librispeech is the CRDNN "
            "with a GRU decoder, small the same for an hour of speech and a CPU; the others have Transformer decoders. "
            "Tiny ones are to try things with."
        ),
    ] = None
    tokens: Annotated[
        Literal["own", "task"], Field(description="The pretrained model's own tokens, or those of the task.")
    ] = "own"
    label_smoothing: Annotated[
        float, Field(ge=0, lt=1, description="The probability that is spread over all tokens in the attention loss.")
    ] = 0.1
    ctc_weight: Annotated[
        float, Field(ge=0, le=1, description="The share of the CTC loss; the rest is the attention loss.")
    ] = 0.5
    ctc_epochs: Annotated[
        int | None, Field(ge=0, le=10**6, description="CTC only in the first N epochs (default: in all).")
    ] = None
    normalize: Annotated[
        Literal["global", "sentence", "none"],
        Field(description="Normalize features by statistics of the training data, of each utterance, or not."),
    ] = "global"
    normalize_epochs: Annotated[
        int | None,
        Field(
            ge=0,
            le=10**6,
            description="Count the global statistics in the first N epochs (default: 2, or 0 for pretrained weights).",
        ),
    ] = None
    temperature: Annotated[
        float, Field(gt=0, le=100, description="Temperature of the decoder's probabilities in a search.")
    ] = 1.0
    end_threshold: Annotated[
        float | None,
        Field(gt=0, le=100, description="A search ends only where the log-probability is above this × the best."),
    ] = None
    max_attention_shift: Annotated[
        int | None, Field(gt=0, le=10**6, description="A search drops a hypothesis whose attention jumps more frames.")
    ] = None
    coverage: Annotated[
        float, Field(ge=0, le=100, description="Penalty of a search for frames that are attended to again and again.")
    ] = 0.0
    coverage_threshold: Annotated[
        float, Field(ge=0, le=100, description="The attention to a frame, over all tokens, above which it counts.")
    ] = 0.5

    @property
    def epochs_counted(self) -> int:
        """The epochs in which global statistics are counted."""
        if self.normalize != "global":
            return 0
        default = EPOCHS_COUNTED if self.weights is None else 0
        return default if self.normalize_epochs is None else self.normalize_epochs

    def __post_init__(self) -> None:
        if self.weights is None and self.size is None:
            raise ValueError("give `weights` to start from, or the `size` of a new model")
        if self.weights is None and self.tokens == "own":
            raise ValueError("a model without weights has no tokens of its own; write `tokens: task`")
