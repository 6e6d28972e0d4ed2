"""From files to a model, with the ends that are Whisper's own: an utterance to tokens, and tokens to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.errors import ConfigError, DataError, TooLong
from attune.families.whisper.features import LONGEST
from attune.families.whisper.labels import DecoderPrompt, WhisperVocabulary, prefix, sequence
from attune.families.whisper.model import WhisperModel
from attune.families.whisper.packing import Packer
from attune.families.whisper.scorer import DecodingRules, WhisperScorer
from attune.families.whisper.shape import WhisperShape, read_json, read_shape, suppressed
from attune.text.languages import joined
from attune.types import SAMPLE_RATE, Hypothesis, Task, TaskModel, TextTask, Utterance

if TYPE_CHECKING:
    from attune.families.whisper.settings import WhisperConfig

LONGEST_SECONDS = 30.0
ROUNDING_SECONDS = 0.02  # what a manifest's rounded `seconds` may say too much


@dataclass(frozen=True, slots=True)
class WhisperCodec:
    """What an utterance is to the decoder."""

    task: TextTask
    vocabulary: WhisperVocabulary
    told: DecoderPrompt
    positions: int

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The sequence to learn."""
        told, text = self._told(utterance), self.task.text(utterance)
        try:
            return sequence(self.vocabulary, told, self.positions, text, utterance.seconds)
        except DataError as error:
            raise type(error)(f"{utterance.where}: utterance {utterance.id!r} cannot be learned. {error}") from error

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """What decoding begins with."""
        told = self._told(utterance)
        try:
            return prefix(self.vocabulary, told, self.positions)
        except DataError as error:
            raise DataError(f"{utterance.where}: utterance {utterance.id!r} cannot be decoded. {error}") from error

    def read(self, hypothesis: Hypothesis) -> str:
        """The text that was said."""
        return self.vocabulary.decode(hypothesis.tokens)

    def detect_languages(self, scorer: WhisperScorer) -> list[str]:
        """What each utterance of a scorer begins with: the language that was told or heard."""
        codes = {token: code for code, token in self.vocabulary.languages.items()}
        return [codes[prefix[prefix.index(self.vocabulary.start) + 1]] for prefix in scorer.prefixes]

    def join(self, texts: Sequence[str], whole: Utterance) -> str:
        """What was said in the pieces of an utterance as one text."""
        return joined(texts, replace(self.told, language=whole.language or self.told.language).written_in)

    def _told(self, utterance: Utterance) -> DecoderPrompt:
        if utterance.seconds > LONGEST_SECONDS + ROUNDING_SECONDS:
            raise TooLong(
                f"{utterance.where}: utterance {utterance.id!r} lasts {utterance.seconds:.1f} s, and Whisper hears "
                f"{LONGEST_SECONDS:.0f} s at a time. Cut it into shorter rows, or set data.long_rows."
            )
        language = utterance.language or self.told.language
        return replace(self.told, language=language, prompt=utterance.labels.get("prompt"))


def build_whisper(config: WhisperConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` describe, with fresh weights."""
    if not isinstance(task, TextTask):
        raise ConfigError("Whisper learns text, and this task has none. Set task.name=transcribe.")
    shape = read_shape(assets / "config.json")
    vocabulary = WhisperVocabulary(assets / "tokenizer.json", shape.is_multilingual)
    told = DecoderPrompt(task.language, config.speech_task, config.timestamps)
    _require_possible(vocabulary, told)
    rules = _rules(assets / "generation_config.json", vocabulary, told, shape)
    model = WhisperModel(shape, config.window, rules, config.gradient_checkpointing)
    ends = WhisperCodec(task, vocabulary, told, shape.target_positions)
    return TaskModel(
        model,
        ends.target,
        ends.read,
        ends.prompt,
        longest_seconds=LONGEST / SAMPLE_RATE,
        pack=Packer(vocabulary, shape.target_positions) if config.pack else None,
        join=ends.join,
        timestamp_begin=rules.first_timestamp,
        detect_languages=ends.detect_languages if vocabulary.is_multilingual and told.language is None else None,
        written=vocabulary.written,
    )


def _require_possible(vocabulary: WhisperVocabulary, told: DecoderPrompt) -> None:
    """What the recipe asks of all utterances must be something that the model can do."""
    try:
        prefix(vocabulary, told, positions=0)
    except DataError as error:
        raise ConfigError(f"task.language: {error}") from error
    if told.task == "translate" and not vocabulary.is_multilingual:
        raise ConfigError(
            "model.speech_task: an English-only Whisper model does not translate. Use a multilingual one."
        )


def _rules(path: Path, vocabulary: WhisperVocabulary, told: DecoderPrompt, shape: WhisperShape) -> DecodingRules:
    written = read_json(path)
    times = range(vocabulary.first_timestamp, shape.vocabulary)
    unasked = [vocabulary.without_timestamps] if told.has_timestamps else times
    return DecodingRules(
        told=told,
        start=vocabulary.start,
        end=vocabulary.end,
        languages=tuple(vocabulary.languages.values()),
        never=tuple({*suppressed(written, "suppress_tokens", shape, path), *unasked} - {vocabulary.end}),
        not_first=suppressed(written, "begin_suppress_tokens", shape, path),
        first_timestamp=vocabulary.first_timestamp if told.has_timestamps else None,
    )
