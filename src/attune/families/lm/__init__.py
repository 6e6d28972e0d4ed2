"""Language models over a recognizer's tokens, trained or fine-tuned alone; `decode.lm` fuses them in a beam search."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.contracts import Family, Task, TaskModel, TokenizedTask
from attune.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LmConfig:
    """Which weights to start from, and how large the model is."""

    weights: Annotated[str | None, Field(description="Model folder or run to start from.")] = None
    size: Annotated[
        Literal["librispeech", "small", "tiny"],
        Field(description="LSTM layers: 2 × 2048 as in SpeechBrain's LibriSpeech recipe, 2 × 512, or 1 × 64."),
    ] = "small"
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout between layers.")] = 0.0


def build(config: LmConfig, task: Task, assets: Path) -> TaskModel:
    """A recurrent language model over the task's tokens, with random weights."""
    from attune.families.lm.build import build_lm

    if not isinstance(task, TokenizedTask):
        raise ConfigError("A language model needs a task about tokens. Set task.name=language_model.")
    return build_lm(config, task)


FAMILY = Family(config=LmConfig, build=build, architecture_settings=("size",), takes="tokens")
