"""From files to a model, with Whisper's own codec: an utterance to tokens, and tokens to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from attune.contracts import FrameTimes, Limits, Task, TaskModel, TextTask, TimestampTokens
from attune.errors import ConfigError, DataError, TooLong
from attune.families._json import read_json
from attune.families.whisper.features import LONGEST
from attune.families.whisper.labels import DecoderPrompt, SpeechTask, WhisperVocabulary, prefix, sequence
from attune.families.whisper.model import WhisperModel
from attune.families.whisper.packing import Packer
from attune.families.whisper.scorer import DecodingRules, WhisperScorer
from attune.families.whisper.shape import WhisperShape, read_shape, suppressed
from attune.text.languages import join_texts
from attune.types import (
    SAMPLE_RATE,
    Json,
    Output,
    Scorer,
    Target,
    Utterance,
    require_hypothesis,
    require_text,
    tokens_of,
)

if TYPE_CHECKING:
    from attune.families.whisper.settings import WhisperConfig

MAX_SECONDS = 30.0
FRAME_SECONDS = 0.02  # of the encoder's states
ROUNDING_SECONDS = 0.02  # by which a manifest's rounded `seconds` may exceed it


@dataclass(frozen=True, slots=True)
class WhisperCodec:
    """Utterances to decoder sequences, and back."""

    task: TextTask
    vocabulary: WhisperVocabulary
    defaults: DecoderPrompt  # for what an utterance does not set itself
    positions: int

    @property
    def pieces(self) -> Sequence[str]:
        """How the tokenizer writes each token."""
        return self.vocabulary.pieces

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The sequence to learn."""
        prompt, text = self._prompt(utterance), self.task.text(utterance)
        try:
            return sequence(self.vocabulary, prompt, self.positions, text, utterance.seconds)
        except DataError as error:
            if not utterance.where:  # a recording, not a row
                raise
            raise type(error)(
                f"{utterance.where}: utterance {utterance.id!r} cannot be used for training. {error}"
            ) from error

    def frames_needed(self, target: Target) -> int:
        """None in particular: attention sees all of them at once."""
        return 0

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """What decoding starts from."""
        prompt = self._prompt(utterance)
        try:
            return prefix(self.vocabulary, prompt, self.positions)
        except DataError as error:
            if not utterance.where:
                raise
            raise DataError(f"{utterance.where}: utterance {utterance.id!r} cannot be decoded. {error}") from error

    def read(self, output: Output) -> str:
        """The text of a hypothesis."""
        return self.vocabulary.decode(require_hypothesis(output).tokens)

    def join(self, values: Sequence[Json], whole: Utterance) -> str:
        """The text of an utterance from those of its chunks."""
        language, task = whole.language or self.defaults.language, self._speech_task(whole)
        return join_texts(map(require_text, values), DecoderPrompt(language, task).text_language)

    def describe(self, target: Target) -> str:
        """The whole sequence, with prompt and timestamp tokens by name."""
        return self.vocabulary.written(tokens_of(target))

    def detect_languages(self, scorer: Scorer) -> list[str]:
        """The language in each row's prompt, given or detected."""
        codes = {token: code for code, token in self.vocabulary.languages.items()}
        prefixes = cast(WhisperScorer, scorer).prefixes
        return [codes[prefix[prefix.index(self.vocabulary.start) + 1]] for prefix in prefixes]

    def _prompt(self, utterance: Utterance) -> DecoderPrompt:
        if utterance.seconds > MAX_SECONDS + ROUNDING_SECONDS:
            raise TooLong(
                f"{utterance.where}: utterance {utterance.id!r} is {utterance.seconds:.1f} s long; Whisper takes "
                f"{MAX_SECONDS:.0f} s at a time. Split it into shorter rows, or set data.long_rows."
            )
        return replace(
            self.defaults,
            language=utterance.language or self.defaults.language,
            task=self._speech_task(utterance),
            previous_text=utterance.labels.get("prompt"),
        )

    def _speech_task(self, utterance: Utterance) -> SpeechTask:
        """The recipe's, or the row's own: a corpus may have transcripts and translations."""
        task = utterance.labels.get("speech_task", self.defaults.task)
        if task not in get_args(SpeechTask):
            raise DataError(f"{utterance.where}: speech_task {task!r}. Expected transcribe or translate.")
        if task == "translate" and not self.vocabulary.is_multilingual:
            raise DataError("An English-only Whisper cannot translate. Use a multilingual one.")
        return cast(SpeechTask, task)


def build_whisper(config: WhisperConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` describe, with random weights."""
    if not isinstance(task, TextTask):
        raise ConfigError("Whisper cannot classify, only transcribe. Use model.family=ssl, or task.name=transcribe.")
    shape = read_shape(assets / "config.json")
    vocabulary = WhisperVocabulary(assets / "tokenizer.json", shape.is_multilingual)
    prompt = DecoderPrompt(task.language, config.speech_task, config.timestamps)
    _require_possible(vocabulary, prompt)
    rules = _rules(assets / "generation_config.json", vocabulary, prompt, shape)
    codec = WhisperCodec(task, vocabulary, prompt, shape.target_positions)
    detects = vocabulary.is_multilingual and prompt.language is None
    return TaskModel(
        model=WhisperModel(shape, config.window, rules, config.gradient_checkpointing, config.label_smoothing),
        codec=codec,
        scorer="tokens",
        limits=Limits(LONGEST / SAMPLE_RATE),
        times=TimestampTokens(rules.first_timestamp)
        if rules.first_timestamp is not None
        else FrameTimes(FRAME_SECONDS),
        detect_languages=codec.detect_languages if detects else None,
        pack=Packer(vocabulary, shape.target_positions) if config.pack else None,
    )


def _require_possible(vocabulary: WhisperVocabulary, prompt: DecoderPrompt) -> None:
    """What the recipe asks of all utterances must be something that the model can do."""
    try:
        prefix(vocabulary, prompt, positions=0)
    except DataError as error:
        raise ConfigError(f"task.language: {error}") from error
    if prompt.task == "translate" and not vocabulary.is_multilingual:
        raise ConfigError("model.speech_task=translate needs a multilingual Whisper; this one is English-only.")


def _rules(path: Path, vocabulary: WhisperVocabulary, prompt: DecoderPrompt, shape: WhisperShape) -> DecodingRules:
    written = read_json(path)
    times = range(vocabulary.first_timestamp, shape.vocabulary)
    unasked = [vocabulary.without_timestamps] if prompt.has_timestamps else times
    return DecodingRules(
        prompt=prompt,
        start=vocabulary.start,
        end=vocabulary.end,
        languages=tuple(vocabulary.languages.values()),
        never=tuple({*suppressed(written, "suppress_tokens", shape, path), *unasked} - {vocabulary.end}),
        not_first=suppressed(written, "begin_suppress_tokens", shape, path),
        first_timestamp=vocabulary.first_timestamp if prompt.has_timestamps else None,
        alignment_heads=_alignment_heads(written, shape),
    )


def _alignment_heads(written: Mapping[str, Any], shape: WhisperShape) -> tuple[tuple[int, int], ...]:
    """The heads that a generation config names, of those that the model has."""
    known = {(layer, head) for layer in range(shape.decoder_layers) for head in range(shape.decoder_heads)}
    named = written.get("alignment_heads")
    return tuple(sorted(pair for pair in known if list(pair) in named)) if isinstance(named, list) else ()
