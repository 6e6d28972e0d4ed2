"""Translate speech: text in another language, by a small attention decoder; scored by BLEU.

Rows have the translation as a label, or as their `text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from attune.contracts import TaskType
from attune.errors import DataError
from attune.scoring.bleu import BLEU, ORDER, SIGNATURE, score_translations, sentence_counts
from attune.scoring.texts import texts_of
from attune.tasks.translate.settings import TranslationHeadConfig as TranslationHeadConfig
from attune.text import tokenizers
from attune.text.tokenizers import Tokenizer
from attune.text.tokenizers.characters import UNKNOWN
from attune.types import Metric, Output, Prediction, Scores, ScoringContext, Target, Utterance, require_hypothesis

if TYPE_CHECKING:
    from attune.tasks.translate.head import TranslationHead

BOUNDARY = 0  # the token before and after a text; tokenizers have their blank there, which is never written
COUNTS = (
    *(f"{kind}_{order}" for kind in ("matches", "ngrams") for order in range(1, ORDER + 1)),
    "tokens",
    "ref_tokens",
)


@dataclass(frozen=True, slots=True)
class TranslateConfig:
    """Where the translation is, how it becomes tokens, and what is on top of the encoder."""

    label: Annotated[str, Field(description="Label with the translation, or text.")] = "translation"
    tokens: Annotated[
        Literal["characters", "unigram", "bpe"],
        Field(description="Units to predict: characters, or SentencePiece tokens (unigram, bpe)."),
    ] = "characters"
    vocabulary: Annotated[int | None, Field(ge=3, description="Number of SentencePiece tokens.")] = None
    head: TranslationHeadConfig = field(default_factory=TranslationHeadConfig)

    def __post_init__(self) -> None:
        if (self.tokens == "characters") != (self.vocabulary is None):
            raise ValueError("unigram and bpe tokens need `vocabulary`; characters do not")


class Translate:
    """A translation of each utterance."""

    Config: ClassVar[type[TranslateConfig]] = TranslateConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (BLEU,)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"

    def __init__(self, config: TranslateConfig, folder: Path) -> None:
        self.config = config
        self.folder = folder

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokens of translations."""
        return tokenizers.load(self.folder)

    @staticmethod
    def missing_field(config: TranslateConfig, utterance: Utterance) -> str | None:
        """A translation."""
        return None if config.label in _texts(utterance) else config.label

    @staticmethod
    def prepare(config: TranslateConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Learn the tokens from the training translations."""
        texts = (_translation(config, utterance) for utterance in utterances)
        tokenizers.train(config.tokens, texts, folder, config.vocabulary)

    @staticmethod
    def can_reuse(config: TranslateConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether the tokens in `folder` are as many as wished for, and spell all of the text."""
        tokenizer = tokenizers.load(folder)
        if config.vocabulary not in (None, tokenizer.size):
            return False
        return not any(UNKNOWN in tokenizer.encode(_translation(config, utterance)) for utterance in utterances)

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The tokens of the translation between two boundaries."""
        return (BOUNDARY, *self.tokenizer.encode(_translation(self.config, utterance)), BOUNDARY)

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """A boundary."""
        return (BOUNDARY,)

    def reference(self, utterance: Utterance) -> str:
        """The translation as it is written."""
        return _translation(self.config, utterance)

    def frames_needed(self, target: Target) -> int:
        """One that is attended to: a quarter of the frames are. A decoder does not emit by frames."""
        return 4

    def head(self, width: int, stride: int) -> TranslationHead:
        """A transformer over the frames, and an attention decoder."""
        from attune.tasks.translate.head import TranslationHead

        return TranslationHead(width, self.tokenizer.size, self.config.head)

    def read(self, output: Output) -> str:
        """Token ids as text."""
        return self.tokenizer.decode([token for token in require_hypothesis(output).tokens if token != BOUNDARY])

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Corpus BLEU, and the counts it comes from."""
        found = [each for each in predictions if not each.is_absent]
        references, hypotheses = texts_of(found)
        texts = [text or "" for text in hypotheses]
        bleu = score_translations(references, texts, [each.id for each in found])
        rows = [sentence_counts(*pair) for pair in zip(references, texts, strict=True)]
        totals = sum(rows).tolist() if rows else [0] * len(COUNTS)  # type: ignore[union-attr]
        counts = {**dict(zip(COUNTS, totals, strict=True)), "num_absent": len(predictions) - len(found)}
        return Scores({BLEU.name: bleu}, counts, {"bleu": SIGNATURE})


def _translation(config: TranslateConfig, utterance: Utterance) -> str:
    texts = _texts(utterance)
    if config.label not in texts:
        raise DataError(
            f"{utterance.where}: utterance {utterance.id!r} has no {config.label!r}. Add it to the row, or set "
            "task.label to the label with the translation."
        )
    return texts[config.label]


def _texts(utterance: Utterance) -> dict[str, str]:
    return {**({"text": utterance.text} if utterance.text else {}), **utterance.labels}


TASK: TaskType[TranslateConfig] = Translate
