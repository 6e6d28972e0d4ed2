"""Forced alignment: when each word and character of a given text is in its recording.

CTC models and transducers align by the best path of the text's tokens, window by window; Whisper by its attention to
the audio, in chunks that get their part of the text from what the model recognizes in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from attune.audio.vad import Span, speech_frames, vad_chunks
from attune.batches.plan import Budget, plan_in_order
from attune.contracts import FrameTimes, TaskModel, TextTask
from attune.decoding import ctc_alignment, transducer_alignment
from attune.decoding.forced import TextWindow, TokenText, TokenTimes, align_windows
from attune.decoding.pauses import REACH, snap_to_pauses, speech_between, without_strays
from attune.decoding.text_shares import share_words
from attune.decoding.words import WORD_BEGINS, word_bounds
from attune.errors import DataError, ModelError
from attune.types import (
    SAMPLE_RATE,
    AligningModel,
    Batch,
    CtcScorer,
    Hypothesis,
    TransducerScorer,
    Utterance,
    Word,
    require_text,
    tokens_of,
)

BATCH_SECONDS = 120.0
ATTENTION_REACH = 50  # hundredths of a second
UNKNOWN = "<unk>"
WINDOW_SECONDS = 60.0  # of models that take recordings of any length

Samples = NDArray[np.float32]
Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class AlignmentInput:
    """A recording and its text."""

    samples: Samples
    text: str
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Alignment:
    """The words and characters of a text with their times; confidences are geometric means of token probabilities.

    `missing` are the words at the end for which the audio had no room, `foreign` is speech that the text does not have.
    """

    words: tuple[Word, ...]
    characters: tuple[Word, ...] = ()
    missing: tuple[str, ...] = ()
    foreign: tuple[Span, ...] = ()

    @property
    def confidence(self) -> float:
        """That of all words: 0 where none was aligned."""
        return mean_confidence(self.words)


def mean_confidence(words: Sequence[Word]) -> float:
    """The geometric mean of the words' confidences."""
    logs = [math.log(max(word.confidence, 1e-6)) for word in words]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


@dataclass(frozen=True, slots=True)
class _Text:
    """A text as it is written or, where the model does not learn it word by word, as it learns it."""

    written: tuple[str, ...]
    spelled: tuple[str, ...]  # in letters that the model has
    counts: tuple[int, ...]  # learned words of each written one


@dataclass(frozen=True, slots=True)
class Aligner:
    """Aligns texts with a model; what is aligned together does not matter.

    `batch` makes a batch of samples in given languages, `recognize` transcribes chunks.
    """

    task_model: TaskModel
    task: object
    batch: Callable[[Sequence[Samples], Sequence[str | None]], Batch]
    recognize: Callable[[Sequence[Samples], Sequence[str | None]], list[str]]

    def align(self, inputs: Sequence[AlignmentInput]) -> list[Alignment]:
        """The alignment of each text with its recording."""
        if not isinstance(self.task_model.times, FrameTimes) or not self.task_model.codec.pieces:
            raise ModelError("This model has no token times. Use a CTC model, a transducer or Whisper.")
        texts = [self._text(each) for each in inputs]
        inputs = [replace(one, text=" ".join(text.spelled)) for one, text in zip(inputs, texts, strict=True)]
        found = self._align_tokens(inputs) if self.task_model.scorer == "tokens" else self._align_paths(inputs)
        return [self._finished(one, text, words) for one, text, words in zip(inputs, texts, found, strict=True)]

    def _text(self, one: AlignmentInput) -> _Text:
        """The written words, each with how many words are learned of it; one of none goes with the word before.

        At the beginning, it goes with the word after it.
        """
        if not isinstance(self.task, TextTask):
            raise ModelError("Expected a model that transcribes.")
        task = self.task
        written: list[str] = []
        spelled: list[str] = []
        counts: list[int] = []
        marks = ""  # before the first word

        def learned(text: str) -> list[str]:
            return task.text(Utterance("", 0.0, text=text, language=one.language)).split()

        for word in one.text.split():
            known = self._spelled(word, one)
            if count := len(learned(known)):
                written.append(marks + word)
                spelled.append(known)
                counts.append(count)
                marks = ""
            elif written:
                written[-1] += f" {word}"
            else:
                marks += f"{word} "
        whole = learned(" ".join(spelled))
        if len(whole) != sum(counts):  # such as numbers of several words that are learned as digits
            written, counts = whole, [1] * len(whole)
        return _Text(tuple(written), tuple(spelled), tuple(counts))

    def _spelled(self, word: str, one: AlignmentInput) -> str:
        """The word as it is, in lower or upper case or without marks: the first that the vocabulary has most of.

        Nothing of marks that it does not have.
        """
        pieces = self.task_model.codec.pieces
        if UNKNOWN not in pieces:
            return word
        unknown = list(pieces).index(UNKNOWN)
        letters = "".join(letter for letter in word if letter.isalnum())
        ways = dict.fromkeys((word, word.lower(), word.upper(), letters.lower(), letters.upper()))
        return min(ways, key=lambda way: self._tokens(one, way, 1.0).count(unknown))

    def _tokens(self, one: AlignmentInput, text: str, seconds: float) -> tuple[int, ...]:
        utterance = Utterance("", seconds, text=text, language=one.language)
        tokens = tokens_of(self.task_model.codec.target(utterance))
        if self.task_model.scorer != "tokens":
            return tokens
        return tokens[len(self.task_model.codec.prompt(utterance)) : -1]

    def _bounds(self, tokens: Sequence[int]) -> tuple[tuple[int, int], ...]:
        pieces = self.task_model.codec.pieces
        return tuple(word_bounds([pieces[token] if token < len(pieces) else "" for token in tokens]))

    def _align_paths(self, inputs: Sequence[AlignmentInput]) -> list[list[_TimedWord]]:
        texts = []
        for one in inputs:
            tokens = self._tokens(one, one.text, len(one.samples) / SAMPLE_RATE)
            texts.append(TokenText(tokens, self._bounds(tokens)))
        step = round(self._step * SAMPLE_RATE)
        seconds = min(self.task_model.limits.max_seconds or WINDOW_SECONDS, WINDOW_SECONDS)
        found = align_windows([one.samples for one in inputs], texts, self._align_window, step, seconds)
        return [self._words(text, times) for text, times in zip(texts, found, strict=True)]

    @property
    def _step(self) -> float:
        times = self.task_model.times
        return times.seconds_per_frame if isinstance(times, FrameTimes) else 0.0

    def _align_window(self, windows: Sequence[TextWindow]) -> list[Hypothesis | None]:
        def answer(some: Sequence[TextWindow]) -> list[Hypothesis | None]:
            scorer = self.task_model.model.scorer(self.batch([each.samples for each in some], [None] * len(some)))
            rows = [each.forced for each in some]
            if isinstance(scorer, CtcScorer):
                return ctc_alignment.align(scorer, rows)
            if isinstance(scorer, TransducerScorer):
                return transducer_alignment.align(scorer, rows)
            raise ModelError("Alignment needs a CTC model, a transducer or Whisper.")

        return in_batches(windows, [len(each.samples) / SAMPLE_RATE for each in windows], answer)

    def _words(self, text: TokenText, times: TokenTimes) -> list[_TimedWord]:
        """The words whose tokens all have times."""
        words = []
        for first, last in text.words:
            if last > len(times.starts):
                break
            read = require_text(self.task_model.codec.read(Hypothesis(text.tokens[first:last], 0.0)))
            logs = [math.log(max(each, 1e-10)) for each in times.confidences[first:last]]
            confidence = math.exp(sum(logs) / len(logs))
            word = Word(read, times.starts[first], times.ends[last - 1], round(confidence, 4))
            sizes = [len(self._piece(token)) for token in text.tokens[first:last]]
            spans = zip(times.starts[first:last], times.ends[first:last], strict=True)
            words.append(_TimedWord(word, tuple(Span(*each) for each in spans), tuple(sizes)))
        return words

    def _piece(self, token: int) -> str:
        pieces = self.task_model.codec.pieces
        piece = pieces[token] if token < len(pieces) else ""
        return piece.lstrip("".join(WORD_BEGINS))

    def _align_tokens(self, inputs: Sequence[AlignmentInput]) -> list[list[_TimedWord]]:
        """By attention: each chunk with the words of the text that fall to it."""
        chunks = [_Chunk(number, one, span) for number, one in enumerate(inputs) for span in self._spans(one.samples)]
        shares = self._shares(inputs, chunks)
        busy = [(chunk, share) for chunk, share in zip(chunks, shares, strict=True) if share]
        found = in_batches(busy, [chunk.span.end - chunk.span.start for chunk, _ in busy], self._attend)
        words: list[list[_TimedWord]] = [[] for _ in inputs]
        for (chunk, _), own in zip(busy, found, strict=True):
            words[chunk.recording] += own
        return words

    def _spans(self, samples: Samples) -> list[Span]:
        longest = self.task_model.limits.max_seconds or WINDOW_SECONDS
        if len(samples) <= longest * SAMPLE_RATE:
            return [Span(0.0, len(samples) / SAMPLE_RATE)]
        return vad_chunks(samples, longest)

    def _shares(self, inputs: Sequence[AlignmentInput], chunks: Sequence[_Chunk]) -> list[str]:
        """The text of each chunk; of recordings of several, by what is recognized in each of them."""
        several = {chunk.recording for before, chunk in pairwise(chunks) if before.recording == chunk.recording}
        asked = [chunk for chunk in chunks if chunk.recording in several]
        recognized = self.recognize([chunk.samples for chunk in asked], [chunk.input.language for chunk in asked])
        found: dict[int, list[str]] = {}
        for chunk, text in zip(asked, recognized, strict=True):
            found.setdefault(chunk.recording, []).append(text)
        shares = {number: share_words(inputs[number].text, texts) for number, texts in found.items()}
        parts = {number: iter(share) for number, share in shares.items()}
        return [next(parts[chunk.recording]) if chunk.recording in parts else chunk.input.text for chunk in chunks]

    def _attend(self, some: Sequence[tuple[_Chunk, str]]) -> list[list[_TimedWord]]:
        model = self.task_model.model
        if not isinstance(model, AligningModel):
            raise ModelError("This attention model cannot align. Use a CTC model, a transducer or Whisper.")
        tokens = [self._tokens(chunk.input, text, chunk.span.end - chunk.span.start) for chunk, text in some]
        batch = self.batch([chunk.samples for chunk, _ in some], [chunk.input.language for chunk, _ in some])
        found = model.align(batch, [Hypothesis(each, 0.0) for each in tokens])
        words = []
        for (chunk, _), each in zip(some, found, strict=True):
            times = TokenTimes()
            times.add(each, len(each.tokens), chunk.span.start, self._step)
            words.append(self._words(TokenText(each.tokens, self._bounds(each.tokens)), times))
        return words

    def _finished(self, one: AlignmentInput, text: _Text, found: Sequence[_TimedWord]) -> Alignment:
        """The words as they are written, at the pauses of the audio."""
        frames = speech_frames(one.samples)
        timed = [without_strays(each.word, each.tokens, frames.is_speech) for each in found]
        # Attention is with a word before it begins.
        reach = ATTENTION_REACH if self.task_model.scorer == "tokens" else REACH
        snapped = snap_to_pauses(timed, frames, reach=reach)
        foreign = tuple(Span(*each) for each in speech_between(snapped, frames.is_speech))
        characters = tuple(each for own, word in zip(found, snapped, strict=True) for each in _characters(own, word))
        return Alignment(*_written(text, snapped, characters), foreign)


@dataclass(frozen=True, slots=True)
class _TimedWord:
    """A word, when each of its tokens is, and how many characters each has."""

    word: Word
    tokens: tuple[Span, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Chunk:
    recording: int
    input: AlignmentInput
    span: Span

    @property
    def samples(self) -> Samples:
        return self.input.samples[round(self.span.start * SAMPLE_RATE) : round(self.span.end * SAMPLE_RATE)]


def _characters(own: _TimedWord, word: Word) -> list[Word]:
    """The characters of a word: from the beginning of a token to that of the next, evenly within it."""
    starts = [word.start, *(min(max(each.start, word.start), word.end) for each in own.tokens[1:]), word.end]
    total, count = sum(own.sizes) or 1, len(word.text)
    places = np.concatenate([[0], np.cumsum(own.sizes)]) / total * count
    times = np.interp(np.arange(count + 1), places, np.maximum.accumulate(starts))
    pairs = zip(word.text, pairwise(times.tolist()), strict=True)
    return [Word(letter, round(start, 3), round(end, 3), word.confidence) for letter, (start, end) in pairs]


def _written(
    text: _Text, words: Sequence[Word], characters: tuple[Word, ...]
) -> tuple[tuple[Word, ...], tuple[Word, ...], tuple[str, ...]]:
    """The written words from the learned ones, and those for which there are none."""
    place, found = 0, []
    for written, count in zip(text.written, text.counts, strict=True):
        own = words[place : place + count]
        if len(own) < count:
            break
        confidence = round(mean_confidence(own), 4)
        found.append(Word(written, own[0].start, own[-1].end, confidence))
        place += count
    return tuple(found), characters, text.written[len(found) :]


def in_batches(
    items: Sequence[Item], seconds: Sequence[float], answer: Callable[[Sequence[Item]], Sequence[Answer]]
) -> list[Answer]:
    """An answer for each item, asked for in batches of similar length."""
    plan = plan_in_order(np.array(seconds), Budget(BATCH_SECONDS, None, 1))
    found: dict[int, Answer] = {}
    for step in range(plan.steps):
        rows = [int(row) for row in plan.micro(step, 0)]
        with torch.inference_mode():
            found.update(zip(rows, answer([items[row] for row in rows]), strict=True))
    return [found[row] for row in range(len(items))]


def require_text_of(text: object) -> str:
    """A text to align, which has at least a word."""
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"Expected a text to align, found {text!r}.")
    return text
