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

    weights: Annotated[str | None, Field(description="SpeechBrain folder, model folder or run to start from.")] = None
    size: Annotated[
        Size | None,
        Field(
            description="Size of a new model, as in SpeechBrain's LibriSpeech recipes: librispeech is the CRDNN with "
            "a GRU decoder, small a narrower one, for an hour of speech on a CPU; the others have Transformer "
            "decoders. Tiny ones are for trying things out."
        ),
    ] = None
    tokens: Annotated[Literal["own", "task"], Field(description="Tokens of the pretrained model, or of the task.")] = (
        "own"
    )
    label_smoothing: Annotated[float, Field(ge=0, lt=1, description="Label smoothing of the attention loss.")] = 0.1
    ctc_weight: Annotated[
        float, Field(ge=0, le=1, description="Weight of the CTC loss; the attention loss has the rest.")
    ] = 0.5
    ctc_epochs: Annotated[
        int | None, Field(ge=0, le=10**6, description="Use the CTC loss in the first N epochs only (default: all).")
    ] = None
    normalize: Annotated[
        Literal["global", "sentence", "none"],
        Field(description="Feature normalization: statistics of the training data, of each utterance, or none."),
    ] = "global"
    normalize_epochs: Annotated[
        int | None,
        Field(
            ge=0,
            le=10**6,
            description="Update the global statistics in the first N epochs (default: 2, or 0 for pretrained weights).",
        ),
    ] = None
    temperature: Annotated[float, Field(gt=0, le=100, description="Temperature of the decoder in beam search.")] = 1.0
    end_threshold: Annotated[
        float | None,
        Field(
            gt=0, le=100, description="Beam search ends a hypothesis only if EOS scores above this × the best token."
        ),
    ] = None
    max_attention_shift: Annotated[
        int | None,
        Field(gt=0, le=10**6, description="Beam search ranks hypotheses last that jump further in attention."),
    ] = None
    coverage: Annotated[
        float, Field(ge=0, le=100, description="Coverage penalty of beam search, for frames attended to repeatedly.")
    ] = 0.0
    coverage_threshold: Annotated[
        float, Field(ge=0, le=100, description="Attention to a frame, summed over tokens, above which it is penalized.")
    ] = 0.5
    min_decode_ratio: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            description="Least tokens of a hypothesis for each frame of the encoder.",
            json_schema_extra={"since": "0.2"},
        ),
    ] = 0.0
    max_decode_ratio: Annotated[
        float,
        Field(
            gt=0,
            le=100,
            description="Most tokens of a hypothesis for each frame of the encoder.",
            json_schema_extra={"since": "0.2"},
        ),
    ] = 1.0

    @property
    def epochs_counted(self) -> int:
        """The epochs in which global statistics are counted."""
        if self.normalize != "global":
            return 0
        default = EPOCHS_COUNTED if self.weights is None else 0
        return default if self.normalize_epochs is None else self.normalize_epochs

    def __post_init__(self) -> None:
        if self.weights is None and self.size is None:
            raise ValueError("set `weights` to start from, or the `size` of a new model")
        if self.weights is None and self.tokens == "own":
            raise ValueError("a model without weights has no tokens of its own; set `tokens: task`")
        if self.min_decode_ratio > self.max_decode_ratio:
            raise ValueError("`min_decode_ratio` is above `max_decode_ratio`: no hypothesis could end")
