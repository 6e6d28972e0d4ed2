"""Transcribe speech: text as characters or SentencePiece tokens, learned with CTC.

The normalizer shapes what is learned and what is scored; the `raw_` metrics compare the texts as they were written.
Timestamps in a text (`<|1.20|>`) are for models that learn them; they are never normalized, tokenized here or scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from attune import catalog
from attune.contracts import TaskType
from attune.errors import DataError
from attune.scoring.error_rates import CER, RAW_CER, RAW_WER, SER, WER, score_transcripts
from attune.scoring.texts import texts_of
from attune.text import tokenizers
from attune.text.timestamps import map_between_timestamps, strip_timestamps
from attune.text.tokenizers import Tokenizer
from attune.text.tokenizers.characters import UNKNOWN, CharacterTokenizer
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer
from attune.types import (
    Metric,
    Output,
    Prediction,
    Scores,
    ScoringContext,
    Target,
    Utterance,
    require_hypothesis,
    tokens_of,
)

if TYPE_CHECKING:
    from attune.tasks.transcribe.head import CtcHead


@dataclass(frozen=True, slots=True)
class CtcHeadConfig:
    """The module on top of the encoder: a projection and bidirectional LSTM layers, as in SUPERB."""

    layers: Annotated[int, Field(ge=0, le=100, description="Bidirectional LSTM layers.")] = 2
    width: Annotated[int, Field(ge=1, le=2**62, description="Width of the projection and of each LSTM direction.")] = (
        256
    )
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout before each layer.")] = 0.2


@dataclass(frozen=True, slots=True)
class TranscribeConfig:
    """How text becomes tokens, and what is on top of the encoder."""

    tokens: Annotated[
        Literal["characters", "unigram", "bpe"],
        Field(description="Units to predict: characters, or SentencePiece tokens (unigram, bpe)."),
    ] = "characters"
    vocabulary: Annotated[
        int | None, Field(ge=3, le=10**6, description="Number of SentencePiece tokens, including the blank.")
    ] = None
    tokenizer: Annotated[
        str | None, Field(description="File made by `attune tokenizer`, instead of training a tokenizer.")
    ] = None
    normalizer: Annotated[str, Field(description="Text normalizer for scoring, and for the training text.")] = "none"
    learn: Annotated[
        Literal["normalized", "written"], Field(description="Train on the normalized text, or on the text as written.")
    ] = "normalized"
    language: Annotated[str | None, Field(description="Language code, for multilingual models.")] = None
    head: CtcHeadConfig = field(default_factory=CtcHeadConfig)

    def __post_init__(self) -> None:
        given = [each for each in (self.vocabulary, self.tokenizer) if each is not None]
        if len(given) != (0 if self.tokens == "characters" else 1):
            raise ValueError("unigram and bpe tokens need `vocabulary` or `tokenizer`; characters need neither")


class Transcribe:
    """Text from speech, one token at a time."""

    Config: ClassVar[type[TranscribeConfig]] = TranscribeConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (WER, CER, SER, RAW_WER, RAW_CER)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"
    pipeline_tag: ClassVar[str] = "automatic-speech-recognition"

    def __init__(self, config: TranscribeConfig, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.normalize: Callable[[str], str] = catalog.find(catalog.NORMALIZERS, config.normalizer)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokens; families that bring their own never ask for them."""
        return tokenizers.load(self.folder)

    @property
    def pieces(self) -> tuple[str, ...]:
        """How every token is written, the blank and the unknown first."""
        return self.tokenizer.pieces

    @property
    def language(self) -> str | None:
        """The language of utterances that do not name theirs."""
        return self.config.language

    @staticmethod
    def missing_field(config: TranscribeConfig, utterance: Utterance) -> str | None:
        """A text."""
        return None if utterance.text is not None else "text"

    @staticmethod
    def prepare(config: TranscribeConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Learn the tokens from the training text, or take over those of a file."""
        if config.tokenizer:
            SentencePieceTokenizer.read(Path(config.tokenizer).expanduser()).save(folder)
            return
        normalize = catalog.find(catalog.NORMALIZERS, config.normalizer)
        texts = (_spelled(config, normalize, utterance) for utterance in utterances)
        tokenizers.train(config.tokens, texts, folder, config.vocabulary)

    @staticmethod
    def can_reuse(config: TranscribeConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether the tokens in `folder` are of the wished-for kind and number, and spell all of the text."""
        tokenizer = tokenizers.load(folder)
        if (config.tokens == "characters") != isinstance(tokenizer, CharacterTokenizer):
            return False
        if config.vocabulary not in (None, tokenizer.size):
            return False
        if config.tokenizer:
            return tokenizer.fingerprint == SentencePieceTokenizer.read(Path(config.tokenizer).expanduser()).fingerprint
        normalize = catalog.find(catalog.NORMALIZERS, config.normalizer)
        texts = (_spelled(config, normalize, utterance) for utterance in utterances)
        return not any(UNKNOWN in tokenizer.encode(text) for text in texts)

    def text(self, utterance: Utterance) -> str:
        """The text to learn, with the times that are written in it."""
        return _learned(self.config, self.normalize, utterance)

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The text to learn as token ids."""
        return self.tokenizer.encode(_spelled(self.config, self.normalize, utterance))

    def reference(self, utterance: Utterance) -> str:
        """The text as it was written, without times."""
        return strip_timestamps(_text(utterance), _language(self.config, utterance))

    def frames_needed(self, target: Target) -> int:
        """CTC emits each token on a frame of its own, and a blank between two equal ones."""
        tokens = tokens_of(target)
        return len(tokens) + sum(left == right for left, right in pairwise(tokens))

    def head(self, width: int, stride: int) -> CtcHead:
        """Projection, bidirectional LSTM layers and a distribution over tokens for each frame."""
        from attune.tasks.transcribe.head import CtcHead

        config = self.config.head
        return CtcHead(width, config.width, config.layers, self.tokenizer.size, config.dropout)

    def read(self, output: Output) -> str:
        """Token ids as text."""
        return self.tokenizer.decode(require_hypothesis(output).tokens)

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None; a normalizer whose data is not installed is refused here, before anything is decoded."""
        self.normalize("")
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """WER, CER and SER of the normalized texts with their counts; WER and CER of the raw ones."""
        references, hypotheses = texts_of(predictions)
        return score_transcripts(references, hypotheses, self.normalize, self.config.normalizer)


def _learned(config: TranscribeConfig, normalize: Callable[[str], str], utterance: Utterance) -> str:
    return _text(utterance) if config.learn == "written" else map_between_timestamps(_text(utterance), normalize)


def _spelled(config: TranscribeConfig, normalize: Callable[[str], str], utterance: Utterance) -> str:
    """What is learned in the task's own tokens, of which none is a time."""
    return strip_timestamps(_learned(config, normalize, utterance), _language(config, utterance))


def _language(config: TranscribeConfig, utterance: Utterance) -> str | None:
    return utterance.language or config.language


def _text(utterance: Utterance) -> str:
    if utterance.text is None:
        raise DataError(
            f"{utterance.where}: utterance {utterance.id!r} has no text. Add `text` to the row, or remove the row."
        )
    return utterance.text


TASK: TaskType[TranscribeConfig] = Transcribe
