"""A model that is ready to use on recordings: paths, URLs or arrays in, transcripts or labels out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from attune.audio.vad import is_silent, speech_frames, vad_chunks
from attune.batches.collate import collate
from attune.batches.plan import Budget, plan_in_order
from attune.catalog import own_name
from attune.contracts import FrameTimes, TextTask, TimestampTokens
from attune.decoding.aligner import Aligner, Alignment, AlignmentInput, require_text_of
from attune.decoding.longform import Segment, Window, read_windows
from attune.decoding.pauses import snap_to_pauses
from attune.decoding.search import Search, decode_batch
from attune.decoding.words import words_of
from attune.errors import DataError, ModelError
from attune.loading.pretrained import LoadedModel
from attune.recipe import Recipe
from attune.recordings import Audio, as_samples
from attune.recordings import AudioChunk as AudioChunk
from attune.recordings import Hints as Hints
from attune.transcripts import NBestEntry as NBestEntry
from attune.transcripts import PredictedValue as PredictedValue
from attune.transcripts import Transcript as Transcript
from attune.types import (
    SAMPLE_RATE,
    AligningModel,
    Batch,
    Features,
    Hypothesis,
    LoadedRow,
    Output,
    TextSegment,
    Waveform,
    require_hypothesis,
    require_text,
)
from attune.world import World

Answer = TypeVar("Answer")
Chunking = Literal["vad", "timestamps"]
Phrases = Sequence[str] | Sequence[Sequence[str]]
BATCH_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Recognizer:
    """A model that is ready to use. Results do not depend on what is decoded together."""

    recipe: Recipe
    loaded: LoadedModel
    search: Search
    world: World
    chunking: Chunking = "vad"
    aligns_words: bool = False  # by another pass over the audio, of models that can
    phrases: Phrases = ()  # to expect in all recordings, or a list for each
    max_seconds: float | None = None  # to cut at, for models that have no limit of their own

    @property
    def longest_seconds(self) -> float | None:
        """What is decoded at once at the most; longer recordings are cut."""
        return self.loaded.task_model.limits.max_seconds or self.max_seconds

    def transcribe(
        self, audio: Audio | Sequence[Audio], rate: int = SAMPLE_RATE, phrases: Phrases = ()
    ) -> str | list[str]:
        """The text of one recording, or of each of many: paths, URLs, or arrays sampled at `rate`.

        An array is (samples,) or (channels, samples), of floats from -1 to 1 or of integers as they were recorded.
        Recordings longer than the model takes at once are cut at pauses, or decoded window by window along the
        timestamps that the model predicts (`load(..., chunking=…)`). Under torchrun, the ranks share the work.

        `phrases` are names and terms to expect, in all recordings or a list for each; a beam search then finds them
        more easily.
        """
        return self.expecting(phrases)._predict("transcribe", audio, rate)

    def transcribe_detailed(
        self,
        recordings: Sequence[Audio],
        rate: int = SAMPLE_RATE,
        nbest: int = 0,
        words: bool = True,
        phrases: Phrases = (),
    ) -> list[Transcript]:
        """The transcript of each recording, with word times where the model has them.

        Whisper's word times take another pass over the audio, which `words=False` saves. `phrases` are as `transcribe`
        takes them.

        With `nbest`, a beam at least as wide is searched, and up to that many different texts are returned, best first;
        a recording that has to be cut has none.
        """
        self._require("transcribe")
        if not _is_many(recordings):
            raise DataError("`transcribe_detailed` takes a list of recordings. For one, pass [recording].")
        if not isinstance(nbest, int) or nbest < 0:
            raise DataError(f"nbest: expected a number of texts, 0 or more; found {nbest!r}.")
        if nbest and self.chunking == "timestamps":
            raise DataError('nbest does not work with chunking="timestamps". Use chunking="vad".')
        search = _keeping(self.search, nbest) if nbest else self.search
        return replace(self, search=search, aligns_words=words).expecting(phrases)._transcribe(recordings, rate)

    def expecting(self, phrases: Phrases) -> Recognizer:
        """The same with phrases to expect, in all recordings or a list for each."""
        if isinstance(phrases, str):
            raise DataError(f"phrases: expected a list of texts, or one for each recording; found {phrases!r}.")
        if phrases:
            self._require("transcribe")
        return replace(self, phrases=tuple(phrases)) if phrases else self

    def align(self, audio: Audio, text: str, rate: int = SAMPLE_RATE, language: str | None = None) -> Alignment:
        """When each word and character of the text is in the recording, of any length: forced alignment.

        For CTC models, transducers and Whisper. The recording is what `transcribe` takes.
        """
        return self.align_all([AlignmentInput(as_samples(audio, rate), require_text_of(text), language)])[0]

    def align_all(self, inputs: Sequence[AlignmentInput]) -> list[Alignment]:
        """The alignments of many recordings with their texts."""
        self._require("transcribe")
        task = self.loaded.task
        given = [each.language or (task.language if isinstance(task, TextTask) else None) for each in inputs]
        samples = [each.samples for each in inputs]
        languages = self._languages(samples, [0.0] * len(inputs), given, even_short=True)
        known = [replace(each, language=one) for each, one in zip(inputs, languages, strict=True)]
        return Aligner(self.loaded.task_model, task, self._aligned_batch, self._recognize).align(known)

    def _aligned_batch(self, recordings: Sequence[NDArray[np.float32]], languages: Sequence[str | None]) -> Batch:
        pairs = zip(recordings, languages, strict=True)
        return self._batch([AudioChunk(samples, hints=Hints(language)) for samples, language in pairs])

    def _recognize(self, recordings: Sequence[NDArray[np.float32]], languages: Sequence[str | None]) -> list[str]:
        pairs = zip(recordings, languages, strict=True)
        chunks = [AudioChunk(samples, hints=Hints(language)) for samples, language in pairs]
        return [each.text for each in replace(self, aligns_words=False).transcribe_chunks(chunks)]

    def classify(self, audio: Audio | Sequence[Audio], rate: int = SAMPLE_RATE) -> str | list[str]:
        """The label of one recording, or of each of many; takes what `transcribe` takes."""
        return self._predict("classify", audio, rate)

    def predict(self, recordings: Sequence[Audio], rate: int = SAMPLE_RATE) -> list[PredictedValue]:
        """What the model predicts for each recording, whatever its task: a text, a label, a vector, audio …"""
        if not _is_many(recordings):
            raise DataError("`predict` takes a list of recordings. For one, pass [recording].")
        if not self.loaded.task.needs_audio:
            raise ModelError(
                f"The task {own_name(self.recipe.task.name)} has text input; its model cannot be used on audio."
            )
        if isinstance(self.loaded.task, TextTask):
            found = self._transcribe(recordings, rate)
            return [PredictedValue(each.text, language=each.language) for each in found]
        return self._shared(recordings, rate, self._predict_whole)

    def _predict_whole(self, recordings: Sequence[NDArray[np.float32]]) -> list[PredictedValue]:
        """What is predicted of recordings that are not cut."""
        task_model = self.loaded.task_model
        outputs = self._in_batches(
            [AudioChunk(samples) for samples in recordings], lambda batch: decode_batch(task_model, batch, self.search)
        )
        return [self._value(output) for output in outputs]

    def _value(self, output: Output) -> PredictedValue:
        if isinstance(output, Waveform):
            return PredictedValue(None, output.score, waveform=output)
        if isinstance(output, Features):
            return PredictedValue(None, output.score, features=output)
        is_label = self.loaded.task_model.scorer == "label" and output.score is not None
        probability = round(math.exp(output.score), 4) if is_label and output.score is not None else None
        return PredictedValue(self.loaded.task_model.codec.read(output), output.score, probability)

    def _predict(self, task: str, audio: Audio | Sequence[Audio], rate: int) -> str | list[str]:
        self._require(task)
        if not _is_many(audio):
            return self._transcribe([audio], rate)[0].text  # type: ignore[list-item]
        return [transcript.text for transcript in self._transcribe(list(audio), rate)]  # type: ignore[arg-type]

    def _require(self, task: str) -> None:
        if self.recipe.task.name != task:
            raise ModelError(
                f"This model was trained to {own_name(self.recipe.task.name)}, not to {task}. Use `predict`, for any "
                "task, or another model."
            )

    def _transcribe(self, recordings: Sequence[Audio], rate: int) -> list[Transcript]:
        by_timestamps = self.chunking == "timestamps"
        answer = self._transcribe_by_timestamps if by_timestamps else self._transcribe_chunks
        given = self.loaded.task.language if isinstance(self.loaded.task, TextTask) else None
        return [replace(each, language=each.language or given) for each in self._shared(recordings, rate, answer)]

    def _shared(
        self,
        recordings: Sequence[Audio],
        rate: int,
        answer: Callable[[Sequence[NDArray[np.float32]]], Sequence[Answer]],
    ) -> list[Answer]:
        """An answer for each recording; the ranks share the work."""
        mine = range(self.world.rank, len(recordings), self.world.size)
        own = dict(zip(mine, answer([as_samples(recordings[index], rate) for index in mine]), strict=True))
        together = {index: found for share in self.world.gather(own) for index, found in share.items()}
        return [together[index] for index in range(len(recordings))]

    def segments(self, audio: Audio, rate: int = SAMPLE_RATE) -> list[Segment]:
        """Text with start and end times, for a model that was loaded with `chunking="timestamps"`."""
        if _is_many(audio):
            raise DataError("`segments` takes one recording.")
        samples = as_samples(audio, rate)
        found = self._read_windows([samples], self._languages([samples], [0.0], [None]))[0]
        return [replace(each, text=self._read(each.tokens)) for each in found]

    def _read(self, tokens: tuple[int, ...]) -> str:
        return require_text(self.loaded.task_model.codec.read(Hypothesis(tokens, 0.0)))

    def _transcribe_by_timestamps(self, recordings: Sequence[NDArray[np.float32]]) -> list[Transcript]:
        """The transcript of each recording, decoded window by window."""
        languages = self._languages(recordings, [0.0] * len(recordings), [None] * len(recordings), even_short=True)
        return [
            Transcript(
                self._read(tuple(token for each in segments for token in each.tokens)),
                segments=tuple(TextSegment(each.start, each.end, self._read(each.tokens)) for each in segments),
                language=language,
            )
            for segments, language in zip(self._read_windows(recordings, languages), languages, strict=True)
        ]

    def _read_windows(
        self, recordings: Sequence[NDArray[np.float32]], languages: Sequence[str | None]
    ) -> list[list[Segment]]:
        task_model = self.loaded.task_model
        if not isinstance(task_model.times, TimestampTokens):
            raise ModelError('No timestamps here. For Whisper, use load(..., chunking="timestamps").')

        def decode(windows: Sequence[Window]) -> list[tuple[int, ...]]:
            hints = self._hints(len(recordings))
            chunks = [
                AudioChunk(each.samples, hints=replace(hints[each.recording], language=languages[each.recording]))
                for each in windows
            ]
            return [found.tokens for found in self._search(chunks)]

        return read_windows(recordings, decode, task_model.times, task_model.limits.max_seconds or 30.0)

    def _transcribe_chunks(self, recordings: Sequence[NDArray[np.float32]]) -> list[Transcript]:
        """The transcript of each recording, joined from those of its chunks."""
        hints = self._hints(len(recordings))
        chunks = self.split(recordings, hints)
        found = iter(self.transcribe_chunks([chunk for each in chunks for chunk in each]))
        return [self.join([next(found) for _ in each], one) for each, one in zip(chunks, hints, strict=True)]

    def _hints(self, count: int) -> list[Hints]:
        """What is known of each recording of the rank's share."""
        if any(isinstance(each, str) for each in self.phrases):
            return [Hints(phrases=tuple(map(str, self.phrases)))] * count
        own = self.phrases[self.world.rank :: self.world.size] if self.phrases else [()] * count
        if len(own) != count:
            raise DataError(f"phrases: expected a list for each recording; found {len(self.phrases)} lists.")
        return [Hints(phrases=tuple(map(str, each))) for each in own]

    def split(self, recordings: Sequence[NDArray[np.float32]], hints: Sequence[Hints]) -> list[list[AudioChunk]]:
        """The chunks of each recording, in the language of the whole where that has to be detected."""
        chunks = [self._chunks(samples) for samples in recordings]
        starts = [each[0].start if each else 0.0 for each in chunks]
        languages = self._languages(recordings, starts, [each.language for each in hints])
        known = [replace(each, language=one) for each, one in zip(hints, languages, strict=True)]
        return [[replace(chunk, hints=one) for chunk in each] for each, one in zip(chunks, known, strict=True)]

    def transcribe_chunks(self, chunks: Sequence[AudioChunk]) -> list[Transcript]:
        """The transcript of each chunk, with times in its recording."""
        return [self._transcript(found, chunk) for found, chunk in zip(self._search(chunks), chunks, strict=True)]

    def join(self, parts: Sequence[Transcript], hints: Hints) -> Transcript:
        """The transcript of a recording from those of its chunks, in their order."""
        if len(parts) == 1:
            return parts[0]
        language = parts[0].language if parts else None
        texts = [part.text for part in parts]
        whole = replace(hints, language=language).as_utterance()
        text = require_text(self.loaded.task_model.codec.join(texts, whole))
        words = tuple(word for part in parts for word in part.words)
        segments = tuple(segment for part in parts for segment in part.segments)
        return Transcript(text, words, segments=segments, language=language)

    def _languages(
        self,
        recordings: Sequence[NDArray[np.float32]],
        starts: Sequence[float],
        given: Sequence[str | None],
        even_short: bool = False,
    ) -> list[str | None]:
        """The language of each recording, given or, of several chunks, detected in the first audio after its start.

        None where there is nothing to detect ahead: an only chunk is detected when it is decoded, unless `even_short`.
        """
        task_model, detect_languages = self.loaded.task_model, self.loaded.task_model.detect_languages
        if detect_languages is None or task_model.limits.max_seconds is None:
            return list(given)
        longest = round(task_model.limits.max_seconds * SAMPLE_RATE)
        firsts = {
            index: AudioChunk(samples[round(start * SAMPLE_RATE) :][:longest])
            for index, (samples, start) in enumerate(zip(recordings, starts, strict=True))
            if given[index] is None and (even_short or len(samples) > longest)
        }
        detected = self._in_batches(
            list(firsts.values()), lambda batch: detect_languages(task_model.model.scorer(batch))
        )
        known = dict(zip(firsts, detected, strict=True))
        return [known.get(index, language) for index, language in enumerate(given)]

    def _transcript(self, found: Hypothesis, chunk: AudioChunk) -> Transcript:
        task_model = self.loaded.task_model
        text = require_text(task_model.codec.read(found))
        entries: dict[str, NBestEntry] = {}
        for each in (found, *found.nbest) if self.search.nbest else ():
            own = require_text(task_model.codec.read(each))  # other tokens may spell the same
            entries.setdefault(own, NBestEntry(own, each.score, dict(each.parts)))
        mean = round(found.score / (len(found.tokens) + 1), 4)
        segment = TextSegment(round(chunk.start, 3), round(chunk.start + chunk.seconds, 3), text, mean)
        words = words_of(found, task_model, chunk.start)
        if words and task_model.scorer == "ctc":  # it emits a word somewhere within its sound
            words = snap_to_pauses(words, speech_frames(chunk.samples), chunk.start)
        language = found.language or chunk.hints.language
        return Transcript(text, words, tuple(entries.values()), (segment,), language)

    def _chunks(self, samples: NDArray[np.float32]) -> list[AudioChunk]:
        """The recording, or its speech cut at pauses into what the model takes at once."""
        if is_silent(samples):
            return []  # some models make up words for silence
        longest = self.longest_seconds
        if longest is None or len(samples) <= longest * SAMPLE_RATE:
            return [AudioChunk(samples)]
        spans = vad_chunks(samples, longest)
        return [
            AudioChunk(samples[round(span.start * SAMPLE_RATE) : round(span.end * SAMPLE_RATE)], span.start)
            for span in spans
        ]

    def _search(self, chunks: Sequence[AudioChunk]) -> list[Hypothesis]:
        """The best hypothesis of each chunk; one with phrases to expect is searched with a beam."""
        expecting = [bool(chunk.hints.phrases) and self.search.kind == "greedy" for chunk in chunks]
        plain = self._in_batches(
            [each for each, is_so in zip(chunks, expecting, strict=True) if not is_so], self._decode
        )
        if not any(expecting):
            return plain
        beam = replace(self, search=self._beam())
        boosted = beam._in_batches([each for each, is_so in zip(chunks, expecting, strict=True) if is_so], beam._decode)
        parts = {False: iter(plain), True: iter(boosted)}
        return [next(parts[is_so]) for is_so in expecting]

    def _beam(self) -> Search:
        """The search of chunks with phrases, where the recipe's is greedy."""
        if self.search.phrases is None:
            raise ModelError("This model has no text tokens, so `phrases` cannot be used. Remove them.")
        return replace(self.search, kind="beam")

    def _decode(self, batch: Batch) -> list[Hypothesis]:
        model = self.loaded.task_model.model
        found = [require_hypothesis(each) for each in decode_batch(self.loaded.task_model, batch, self.search)]
        is_timed = isinstance(self.loaded.task_model.times, FrameTimes)
        return (
            model.align(batch, found) if self.aligns_words and is_timed and isinstance(model, AligningModel) else found
        )

    def _in_batches(self, chunks: Sequence[AudioChunk], answer: Callable[[Batch], Sequence[Answer]]) -> list[Answer]:
        """An answer for each chunk, asked for in batches of similar length."""
        plan = plan_in_order(np.array([chunk.seconds for chunk in chunks]), Budget(BATCH_SECONDS, None, 1))
        found: dict[int, Answer] = {}
        for step in range(plan.steps):
            rows = [int(row) for row in plan.micro(step, 0)]
            with torch.inference_mode():
                answers = answer(self._batch([chunks[row] for row in rows]))
            found.update(zip(rows, answers, strict=True))
        return [found[row] for row in range(len(chunks))]

    def _batch(self, chunks: Sequence[AudioChunk]) -> Batch:
        prompt = self.loaded.task_model.codec.prompt
        rows = [
            LoadedRow("", each.samples, prompt(each.hints.as_utterance(each.seconds)), phrases=each.hints.phrases)
            for each in chunks
        ]
        return collate(rows).to(self.world.device)


def _keeping(search: Search, nbest: int) -> Search:
    return replace(search, kind="beam", beam=max(search.beam, nbest), nbest=nbest)


def _is_many(audio: Audio | Sequence[Audio]) -> bool:
    """A list or tuple is many recordings, unless it is a list of numbers."""
    return isinstance(audio, list | tuple) and not (len(audio) and isinstance(audio[0], int | float | np.number))
