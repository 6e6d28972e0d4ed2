"""The one place where Whisper's decoder sequences are made, for training and for decoding alike.

    [<|startofprev|> prompt] <|startoftranscript|> [<|language|> <|task|>] [<|notimestamps|>] text <|endoftext|>

Everything after <|startoftranscript|> is learned, the end included; it stands in a sequence exactly once. English-only
models know neither language nor task.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from attune import catalog
from attune.errors import DataError, ModelError, TooLong
from attune.text.languages import base_language, is_spaced
from attune.text.timestamps import split_at_timestamps, strip_timestamps

UNKNOWN_LANGUAGE = -1  # stands for the language until the model has detected it
SECONDS_PER_TIMESTAMP = 0.02
LATE_SECONDS = 0.1  # that an aligner's last time may lie beyond the audio

SpeechTask = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True)
class DecoderPrompt:
    """What conditions the decoder: language, task, timestamps, and the text before this window."""

    language: str | None
    task: SpeechTask = "transcribe"
    has_timestamps: bool = False
    previous_text: str | None = None

    @property
    def text_language(self) -> str | None:
        """The language of the text, which a translation does not have from the speech."""
        return "en" if self.task == "translate" else self.language


class WhisperVocabulary:
    """Text to tokens and back, and the tokens that mean something else than text."""

    def __init__(self, path: Path, is_multilingual: bool) -> None:
        self.tokenizer = _read_tokenizer(path)
        self.tokenizer.encode_special_tokens = True  # a transcript cannot smuggle in an <|endoftext|>
        self.is_multilingual = is_multilingual
        self.end = self._special("<|endoftext|>")
        self.start = self._special("<|startoftranscript|>")
        self.previous = self._special("<|startofprev|>")
        self.tasks = {"transcribe": self._special("<|transcribe|>"), "translate": self._special("<|translate|>")}
        self.without_timestamps = self._special("<|notimestamps|>")
        self.first_timestamp = self.without_timestamps + 1

    @functools.cached_property
    def languages(self) -> Mapping[str, int]:
        """Language codes and their tokens, which stand between the start and the tasks."""
        numbers = range(self.start + 1, min(self.tasks.values())) if self.is_multilingual else ()
        return {str(self.tokenizer.id_to_token(number)).strip("<|>"): number for number in numbers}

    @functools.cached_property
    def pieces(self) -> tuple[str, ...]:
        """How text tokens are written (byte-level BPE), by id, and the end, which comes after them, as </s>."""
        return (*(str(self.tokenizer.id_to_token(number)) for number in range(self.end)), "</s>")

    def language(self, code: str) -> int:
        """The token of a language, by its code; `sv-SE` is `sv`."""
        short = base_language(code)
        if short not in self.languages:
            raise DataError(f"This Whisper has no language {code!r}{self._did_you_mean(short)}")
        return self.languages[short]

    def encode(self, text: str, language: str | None) -> tuple[int, ...]:
        """Text as tokens, with the space before the first word that Whisper learned to expect."""
        text = text.strip()
        spaced = self.spelled(f" {text}") if text and is_spaced(language) else ()
        # Where the space would be a token of its own, decoding suppresses it at the beginning.
        return spaced if spaced and spaced[0] not in self.spelled(" ") else self.spelled(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text that is learned or was found, without prompt and timestamp tokens."""
        if self.start in tokens:
            tokens = tokens[list(tokens).index(self.start) + 1 :]
        text: str = self.tokenizer.decode([token for token in tokens if token < self.end])
        return text.strip()

    def written(self, tokens: Sequence[int]) -> str:
        """The whole sequence, with prompt and timestamp tokens by name."""
        spelled = ""
        for is_text, group in groupby(tokens, key=lambda token: token < self.end):
            own = list(group)
            spelled += self.tokenizer.decode(own) if is_text else "".join(map(self._name, own))
        return spelled

    def timestamp(self, seconds: float) -> int:
        """The token of a time within the window."""
        return self.first_timestamp + round(min(seconds, 30.0) / SECONDS_PER_TIMESTAMP)

    def spelled(self, text: str) -> tuple[int, ...]:
        """Exactly this text as tokens."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def _name(self, token: int) -> str:
        if token < self.first_timestamp:
            return str(self.tokenizer.id_to_token(token))
        return f"<|{(token - self.first_timestamp) * SECONDS_PER_TIMESTAMP:.2f}|>"

    def _special(self, token: str) -> int:
        number: int | None = self.tokenizer.token_to_id(token)
        if number is None:
            raise ModelError(
                f"The tokenizer has no {token}: it is not a Whisper tokenizer. Use the "
                "tokenizer.json of the same model."
            )
        return number

    def _did_you_mean(self, code: str) -> str:
        if not self.languages:
            return ": it is English-only."
        if len(code) == 2:
            return catalog.suggestion(code, self.languages)
        # A name, or a code of three letters, is near to codes of other languages.
        from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

        meant = TO_LANGUAGE_CODE.get(code.lower())
        return f"; did you mean {meant!r}?" if meant in self.languages else " (use a code such as 'en' or 'be')."


def prefix(vocabulary: WhisperVocabulary, prompt: DecoderPrompt, positions: int) -> tuple[int, ...]:
    """What decoding begins with. A language that is not known is left open as UNKNOWN_LANGUAGE."""
    tokens = []
    if prompt.previous_text:
        # As OpenAI has it: a space, and the last of the previous text, at most half of the positions.
        before = vocabulary.spelled(f" {strip_timestamps(prompt.previous_text, prompt.text_language).strip()}")
        tokens += [vocabulary.previous, *before[-(positions // 2 - 1) :]]
    tokens.append(vocabulary.start)
    if vocabulary.is_multilingual:
        tokens.append(UNKNOWN_LANGUAGE if prompt.language is None else vocabulary.language(prompt.language))
        tokens.append(vocabulary.tasks[prompt.task])
    elif prompt.language is not None and base_language(prompt.language) != "en":
        raise DataError(f"An English-only Whisper has no language {prompt.language!r}. Use a multilingual one.")
    if not prompt.has_timestamps:
        tokens.append(vocabulary.without_timestamps)
    return tuple(tokens)


def sequence(
    vocabulary: WhisperVocabulary, prompt: DecoderPrompt, positions: int, text: str, seconds: float
) -> tuple[int, ...]:
    """The whole decoder sequence for a text that takes so many seconds, from its prefix to its end."""
    tokens = prefix(vocabulary, prompt, positions)
    if UNKNOWN_LANGUAGE in tokens:
        raise DataError("Unknown language. Add `language` to the row, or set task.language.")
    content = _timed(vocabulary, prompt, text, seconds) if prompt.has_timestamps else _untimed(vocabulary, prompt, text)
    tokens = (*tokens, *content, vocabulary.end)
    if len(tokens) > positions:
        raise TooLong(f"The text has {len(tokens)} tokens; Whisper takes {positions}. Split the row.")
    return tokens


def _untimed(vocabulary: WhisperVocabulary, prompt: DecoderPrompt, text: str) -> tuple[int, ...]:
    return vocabulary.encode(strip_timestamps(text, prompt.text_language), prompt.text_language)


def _timed(vocabulary: WhisperVocabulary, prompt: DecoderPrompt, text: str, seconds: float) -> tuple[int, ...]:
    """Tokens between timestamps: those written in the text as <|1.20|>, or else the whole duration."""
    parts = split_at_timestamps(text)
    if not any(part.strip() for part in parts[::2]):
        return (vocabulary.timestamp(0.0),)  # a time without words has no other after it, in decoding too
    if len(parts) == 1:
        parts = ["", "0.00", text, f"{seconds:.2f}", ""]
    _require_order(parts, seconds)
    tokens: list[int] = []
    for place, part in enumerate(parts):
        is_time = place % 2 == 1
        tokens += [vocabulary.timestamp(float(part))] if is_time else vocabulary.encode(part, prompt.text_language)
    return tuple(tokens)


def _require_order(parts: Sequence[str], seconds: float) -> None:
    """Only what decoding may emit can be learned: every piece of text between two times of its own, in their order."""
    times = [float(part) for part in parts[1::2]]
    if times != sorted(times) or times[-1] > seconds + LATE_SECONDS:
        raise DataError(f"Timestamps must rise and lie within {seconds:.2f} s; found {times}. Correct them.")
    # A last time alone is when something begins that the window cuts off.
    if any(part.strip() for part in (*parts[::4], parts[-1])):
        raise DataError("Each segment of the text needs a timestamp before and after it: <|0.00|> So.<|1.20|>.")


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more exact
        raise ModelError(f"{path} is not a valid tokenizer: {error}") from error
