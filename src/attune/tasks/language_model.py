"""Model text: a language model over the tokens of a recognizer, trained or fine-tuned on text alone.

Perplexity per token depends on the tokens; per word it does not, as long as the words are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from attune.contracts import TaskType
from attune.errors import ModelError
from attune.scoring import bootstrap
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.types import (
    Json,
    Likelihood,
    Metric,
    Output,
    Prediction,
    Scores,
    ScoringContext,
    Target,
    Utterance,
)

WORD_PERPLEXITY = Metric("word_perplexity", "", False, "Perplexity per word.")
PERPLEXITY = Metric("perplexity", "", False, "Perplexity per token, including the end of each text.")


@dataclass(frozen=True, slots=True)
class LanguageModelConfig:
    """How text becomes tokens: as in the recognizer that the language model is for."""

    tokens: Annotated[
        Literal["characters", "unigram", "bpe"],
        Field(description="Units to predict: characters, or SentencePiece tokens (unigram, bpe)."),
    ] = "characters"
    vocabulary: Annotated[
        int | None, Field(ge=3, le=10**6, description="Number of SentencePiece tokens, including the blank.")
    ] = None
    tokenizer: Annotated[str | None, Field(description="Tokenizer file, the same as the recognizer's.")] = None
    normalizer: Annotated[str, Field(description="Text normalizer of the training text.")] = "none"

    def __post_init__(self) -> None:
        self.as_transcription()

    def as_transcription(self) -> TranscribeConfig:
        """The same tokens as a recognizer's."""
        return TranscribeConfig(self.tokens, self.vocabulary, self.tokenizer, self.normalizer)


class LanguageModelTask:
    """How probable each text is."""

    Config: ClassVar[type[LanguageModelConfig]] = LanguageModelConfig
    needs_audio: ClassVar[bool] = False
    metrics: ClassVar[tuple[Metric, ...]] = (PERPLEXITY, WORD_PERPLEXITY)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"
    pipeline_tag: ClassVar[str] = "text-generation"

    def __init__(self, config: LanguageModelConfig, folder: Path) -> None:
        self.transcription = Transcribe(config.as_transcription(), folder)

    @property
    def pieces(self) -> tuple[str, ...]:
        """How every token is written."""
        return self.transcription.pieces

    @property
    def language(self) -> str | None:
        """The language of texts that do not name theirs."""
        return self.transcription.language

    def text(self, utterance: Utterance) -> str:
        """The text to learn, for models with tokens of their own."""
        return self.transcription.text(utterance)

    @staticmethod
    def missing_field(config: LanguageModelConfig, utterance: Utterance) -> str | None:
        """A text."""
        return None if utterance.text is not None else "text"

    @staticmethod
    def prepare(config: LanguageModelConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Learn the tokens from the training text, or take over those of a file."""
        Transcribe.prepare(config.as_transcription(), utterances, folder)

    @staticmethod
    def can_reuse(config: LanguageModelConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether the tokens in `folder` are of the wished-for kind and number, and spell all of the text."""
        return Transcribe.can_reuse(config.as_transcription(), folder, utterances)

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The text as token ids."""
        return self.transcription.target(utterance)

    def reference(self, utterance: Utterance) -> Json:
        """The text, whose words are counted."""
        return self.transcription.reference(utterance)

    def frames_needed(self, target: Target) -> int:
        """None: there is no audio."""
        return 0

    def read(self, output: Output) -> Json:
        """The log-probability of the text and over how many tokens."""
        if not isinstance(output, Likelihood):
            raise ModelError("Expected a model that scores texts, such as the family lm.")
        return {"log_prob": round(output.log_prob, 4), "tokens": output.count}

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Perplexity per token and per word; the end of each text counts as one of either."""
        found = [each for each in predictions if isinstance(each.value, Mapping)]
        losses = _numbers(found, "log_prob")
        counts = {
            PERPLEXITY: _numbers(found, "tokens"),
            WORD_PERPLEXITY: np.array([len(str(each.reference).split()) + 1.0 for each in found]),
        }
        ids = [each.id for each in found]
        values = {
            metric.name: bootstrap.statistic(metric, partial(_perplexity, losses, own), ids)
            for metric, own in counts.items()
        }
        tokens, words = (int(own.sum()) for own in counts.values())
        return Scores(values, {"num_tokens": tokens, "num_words": words, "num_absent": len(predictions) - len(found)})


def _perplexity(losses: NDArray[np.float64], counts: NDArray[np.float64], rows: NDArray[np.intp]) -> float:
    return math.exp(min(700.0, -losses[rows].sum() / max(1.0, counts[rows].sum())))


def _numbers(found: Sequence[Prediction], key: str) -> NDArray[np.float64]:
    values: list[Any] = [each.value for each in found]
    return np.array([float(value[key]) for value in values])


TASK: TaskType[LanguageModelConfig] = LanguageModelTask
