"""The Python face: what notebooks and scripts need, and what the command line is a thin layer over."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import starmap
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike, NDArray

from attune import recipe as recipes
from attune.audio.decode import read_audio, resample
from attune.audio.vad import vad_chunks
from attune.batches.collate import collate
from attune.batches.plan import Budget, plan_in_order
from attune.catalog import NORMALIZERS, find
from attune.contracts import TaskModel, TimestampTokens
from attune.decoding.longform import Segment, Window, read_windows
from attune.decoding.predict import prepare_for_decoding
from attune.decoding.search import Search, decode_batch
from attune.decoding.words import words_of
from attune.errors import ConfigError, DataError, ModelError
from attune.recipe import Recipe
from attune.run import Run
from attune.scoring.error_rates import score_transcripts
from attune.site import this_site
from attune.sources import locate
from attune.stages import drain
from attune.stages import train as train_stage
from attune.stages.eval_target import evaluate_target, load_eval_target, open_eval_target, record
from attune.stages.evaluate import Evaluation, search_of
from attune.stages.lock import as_locked
from attune.stages.pretrained import LoadedModel
from attune.types import (
    SAMPLE_RATE,
    Batch,
    Hypothesis,
    LoadedRow,
    Scores,
    Utterance,
    Word,
    require_hypothesis,
    require_text,
)
from attune.world import World, choose_device

Answer = TypeVar("Answer")
Audio = str | Path | ArrayLike
Long = Literal["pauses", "windows"]
BATCH_SECONDS = 120.0
INTEGERS = (np.int8, np.int16, np.int32)  # of wider ones, nobody knows what is loud


@dataclass(frozen=True, slots=True)
class NBestEntry:
    """One of the texts that a beam found, and its log-probability."""

    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said, its words with their times where the model can tell those, and the best few where asked for."""

    text: str
    words: tuple[Word, ...] = ()
    alternatives: tuple[NBestEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is heard at once, and where it begins in its recording."""

    samples: NDArray[np.float32]
    start: float = 0.0  # seconds
    language: str | None = None  # None: what the recipe says, or what is heard in this piece alone

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Recognizer:
    """A model that is ready to use. Its answers do not depend on what is asked together."""

    recipe: Recipe
    assembled: LoadedModel
    search: Search
    world: World
    long: Long = "pauses"

    def transcribe(self, audio: Audio | Sequence[Audio], rate: int = SAMPLE_RATE) -> str | list[str]:
        """The text of one recording, or of each of many: paths, URLs, or arrays sampled at `rate`.

        An array is (samples,) or (channels, samples), of floats from -1 to 1 or of integers as they were recorded.
        Recordings longer than the model can hear at once are cut in their pauses, or read window after window by a
        model that says when. Under torchrun, the ranks share the work.
        """
        return self._predict("transcribe", audio, rate)

    def transcribe_detailed(
        self, recordings: Sequence[Audio], rate: int = SAMPLE_RATE, alternatives: int = 0
    ) -> list[Transcript]:
        """What `transcribe` says of each of many recordings, with the words' times.

        With `alternatives`, a beam at least as wide is searched, and up to so many different texts are told, best
        first; those of a recording that has to be cut are not.
        """
        self._require("transcribe")
        if not _is_many(recordings):
            raise DataError("`transcribe_detailed` takes a list of recordings. For one, give [recording].")
        if not isinstance(alternatives, int) or alternatives < 0:
            raise DataError(f"alternatives is how many texts to tell, 0 or more; found {alternatives!r}.")
        if alternatives and self.long == "windows":
            raise DataError("There are no alternatives to what is read window after window. Leave one of both out.")
        hearing = replace(self, search=_keeping(self.search, alternatives)) if alternatives else self
        return hearing._hear(recordings, rate)

    def classify(self, audio: Audio | Sequence[Audio], rate: int = SAMPLE_RATE) -> str | list[str]:
        """The label of one recording, or of each of many; takes what `transcribe` takes."""
        return self._predict("classify", audio, rate)

    def _predict(self, task: str, audio: Audio | Sequence[Audio], rate: int) -> str | list[str]:
        self._require(task)
        if not _is_many(audio):
            return self._hear([audio], rate)[0].text  # type: ignore[list-item]
        return [spoken.text for spoken in self._hear(list(audio), rate)]  # type: ignore[arg-type]

    def _require(self, task: str) -> None:
        if self.recipe.task.name != task:
            raise ModelError(f"This model was trained to {self.recipe.task.name}, not to {task}.")

    def _hear(self, recordings: Sequence[Audio], rate: int) -> list[Transcript]:
        mine = range(self.world.rank, len(recordings), self.world.size)
        samples = [as_samples(recordings[index], rate) for index in mine]
        heard = self._hear_in_windows(samples) if self.long == "windows" else self._hear_in_pieces(samples)
        said = dict(zip(mine, heard, strict=True))
        together = {index: spoken for share in self.world.gather(said) for index, spoken in share.items()}
        return [together[index] for index in range(len(recordings))]

    def segments(self, audio: Audio, rate: int = SAMPLE_RATE) -> list[Segment]:
        """What was said when, for a model that was loaded with `long="windows"`."""
        if _is_many(audio):
            raise DataError("`segments` takes one recording.")
        read = self.assembled.task_model.codec.read
        found = self._read_windows([as_samples(audio, rate)])[0]
        return [replace(each, text=require_text(read(Hypothesis(each.tokens, 0.0)))) for each in found]

    def _hear_in_windows(self, recordings: Sequence[NDArray[np.float32]]) -> list[Transcript]:
        """What is said in each recording, read window after window."""
        read = self.assembled.task_model.codec.read
        return [
            Transcript(require_text(read(Hypothesis(tuple(token for each in segments for token in each.tokens), 0.0))))
            for segments in self._read_windows(recordings)
        ]

    def _read_windows(self, recordings: Sequence[NDArray[np.float32]]) -> list[list[Segment]]:
        built = self.assembled.task_model
        if not isinstance(built.times, TimestampTokens):
            raise ModelError('This model does not say when. Load it with long="windows", if it is one that can.')

        languages = self._languages(recordings, [0.0] * len(recordings))

        def decode(windows: Sequence[Window]) -> list[tuple[int, ...]]:
            pieces = [_Piece(window.samples, language=languages[window.recording]) for window in windows]
            return [found.tokens for found in self._search(pieces)]

        return read_windows(recordings, decode, built.times, built.limits.max_seconds or 30.0)

    def _hear_in_pieces(self, recordings: Sequence[NDArray[np.float32]]) -> list[Transcript]:
        """What is said in each recording, of its pieces in one line."""
        pieces = [self._pieces(samples) for samples in recordings]
        languages = self._languages(recordings, [each[0].start if each else 0.0 for each in pieces])
        told = [[replace(piece, language=one) for piece in each] for each, one in zip(pieces, languages, strict=True)]
        found = iter(self._search([piece for each in told for piece in each]))
        said = [[self._spoken(next(found), piece.start) for piece in each] for each in told]
        return [_joined(parts, one, self.assembled.task_model) for parts, one in zip(said, languages, strict=True)]

    def _languages(self, recordings: Sequence[NDArray[np.float32]], starts: Sequence[float]) -> list[str | None]:
        """What is spoken in recordings that are heard in parts, by what comes first after their `starts` (seconds).

        None where nobody has to ask: one part is detected as it is heard.
        """
        built, detect_languages = self.assembled.task_model, self.assembled.task_model.detect_languages
        if detect_languages is None or built.limits.max_seconds is None:
            return [None] * len(recordings)
        longest = round(built.limits.max_seconds * SAMPLE_RATE)
        firsts = {
            index: _Piece(samples[round(start * SAMPLE_RATE) :][:longest])
            for index, (samples, start) in enumerate(zip(recordings, starts, strict=True))
            if len(samples) > longest
        }
        heard = self._in_batches(list(firsts.values()), lambda batch: detect_languages(built.model.scorer(batch)))
        known = dict(zip(firsts, heard, strict=True))
        return [known.get(index) for index in range(len(recordings))]

    def _spoken(self, found: Hypothesis, start: float) -> Transcript:
        built = self.assembled.task_model
        scores: dict[str, float] = {}
        for each in (found, *found.nbest) if self.search.nbest else ():
            scores.setdefault(require_text(built.codec.read(each)), each.score)  # other tokens may spell the same
        return Transcript(
            require_text(built.codec.read(found)),
            words_of(found, built, start),
            tuple(starmap(NBestEntry, scores.items())),
        )

    def _pieces(self, samples: NDArray[np.float32]) -> list[_Piece]:
        """The recording, or what is said in it, cut in pauses into what the model can hear at once."""
        longest = self.assembled.task_model.limits.max_seconds
        if longest is None or len(samples) <= longest * SAMPLE_RATE:
            return [_Piece(samples)]
        spans = vad_chunks(samples, longest)
        return [
            _Piece(samples[round(span.start * SAMPLE_RATE) : round(span.end * SAMPLE_RATE)], span.start)
            for span in spans
        ]

    def _search(self, pieces: Sequence[_Piece]) -> list[Hypothesis]:
        """The best hypothesis of each piece."""
        found = self._in_batches(pieces, lambda batch: decode_batch(self.assembled.task_model, batch, self.search))
        return [require_hypothesis(output) for output in found]

    def _in_batches(self, pieces: Sequence[_Piece], answer: Callable[[Batch], Sequence[Answer]]) -> list[Answer]:
        """An answer for each piece, asked for in batches of similar length."""
        plan = plan_in_order(np.array([piece.seconds for piece in pieces]), Budget(BATCH_SECONDS, None, 1))
        found: dict[int, Answer] = {}
        for step in range(plan.steps):
            rows = [int(row) for row in plan.micro(step, 0)]
            with torch.inference_mode():
                answers = answer(self._batch([pieces[row] for row in rows]))
            found.update(zip(rows, answers, strict=True))
        return [found[row] for row in range(len(pieces))]

    def _batch(self, pieces: Sequence[_Piece]) -> Batch:
        prompt = self.assembled.task_model.codec.prompt
        rows = [
            LoadedRow("", each.samples, prompt(Utterance("", each.seconds, language=each.language))) for each in pieces
        ]
        return collate(rows).to(self.world.device)


def load(
    source: str | Path,
    device: str = "auto",
    long: Long = "pauses",
    fallback: bool | None = None,
    language: str | None = None,
) -> Recognizer:
    """A run, a model folder or the URL of one, or a recipe that names weights, ready to use.

    `long` says how recordings are read that are longer than the model can hear at once: cut in their pauses, or window
    after window by the times that the model says. `fallback` decodes doubtful results anew; None: as its recipe has it.
    `language` is what is spoken, for a model that knows several; None: what its recipe says, or else what it detects,
    once for each recording.
    """
    if long not in get_args(Long):
        raise ConfigError(f"long: there is no {long!r}. Use {' or '.join(get_args(Long))}.")
    site = this_site(device=device)
    world = _world(device)
    changes = [f"task.language={_flow(language)}"] if language else []
    subject = open_eval_target(str(source), changes, site)
    if long == "windows":
        _require_times(subject.pretrained.recipe)
        subject = open_eval_target(str(source), [*changes, "model.timestamps=true"], site)
    pretrained = subject.pretrained
    assembled, decode = load_eval_target(pretrained, site, world), pretrained.recipe.decode
    locked = as_locked(subject.run, site) if subject.run else site
    settings = search_of(decode.final or decode, assembled.task_model, locked, world)
    if fallback is not None:
        settings = replace(settings, fallback=fallback)
    built = prepare_for_decoding(assembled.task_model, settings)
    return Recognizer(pretrained.recipe, replace(assembled, task_model=built), settings, world, long)


def _require_times(recipe: Recipe) -> None:
    if "timestamps" not in {setting.name for setting in fields(recipe.model.config)}:
        raise ModelError(
            f"Only models that say times can read window after window; the family {recipe.model.family!r} does not. "
            "Have recordings cut in their pauses instead."
        )


def load_audio(source: str | Path, rate: int = SAMPLE_RATE) -> NDArray[np.float32]:
    """The samples of a recording, mono, at `rate`; `source` is a path or a URL."""
    return read_audio(locate(str(source), this_site().cache), rate=rate)


def train(recipe: str | Path, **overrides: object) -> Run:
    """Train a recipe to its end in this process, or go on with it: `train("x.yaml", optimizer={"lr": 1e-4})`."""
    loaded = recipes.load(Path(recipe), dotted(overrides)).recipe
    site = this_site()
    request = train_stage.Request([Path(sys.argv[0]).name, "attune.train", str(recipe), *dotted(overrides)])
    for _ in train_stage.train(loaded, request, site, _world(site.device)):
        pass
    return Run(Path(loaded.run))


def evaluate(run: str | Path, on: str | None = None, batch: int | None = None) -> Evaluation:
    """Decode and score a run or a model on `dev`, `test`, `train` or a manifest."""
    site = this_site()
    subject = open_eval_target(str(run), [], site)
    world = _world(site.device)
    evaluation = drain(evaluate_target(subject, on, batch, site, world))
    if world.is_first:
        record(subject, evaluation, None)
    return evaluation


def score(references: Sequence[str], hypotheses: Sequence[str | None], normalizer: str = "none") -> Scores:
    """WER, CER and SER of hypotheses, with intervals and counts; None stands for a hypothesis that is absent.

    The `raw_` metrics beside them compare the texts as they are; the normalizer is among the conditions.
    """
    return score_transcripts(references, hypotheses, find(NORMALIZERS, normalizer), normalizer)


def dotted(overrides: Mapping[str, object], prefix: str = "") -> list[str]:
    """Nested settings as the words of a command line: {"train": {"steps": 5}} is train.steps=5."""
    words: list[str] = []
    for key, value in overrides.items():
        if isinstance(value, Mapping):
            words += dotted(value, f"{prefix}{key}.")
        else:
            words.append(f"{prefix}{key}={_flow(value)}")
    return words


def as_samples(audio: Audio, rate: int) -> NDArray[np.float32]:
    """One recording as mono samples at the models' rate."""
    if isinstance(audio, str | Path):
        return load_audio(audio)
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not 0 < rate < math.inf:
        raise DataError(f"rate is a number of samples per second, above 0; found {rate!r}.")
    array = _as_floats(np.asarray(audio))
    if array.ndim == 2:
        array = _mono(array)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise DataError(
            f"An array of shape {array.shape} is not a recording: (samples,) or (channels, samples), "
            "not empty, every sample finite."
        )
    return resample(array, rate, SAMPLE_RATE)


def _keeping(search: Search, alternatives: int) -> Search:
    return replace(search, kind="beam", beam=max(search.beam, alternatives), nbest=alternatives)


def _as_floats(array: NDArray[Any]) -> NDArray[np.float32]:
    """Samples from -1 to 1; integers are parts of the loudest that their type has room for."""
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype in INTEGERS:
        return array.astype(np.float32) / -np.float32(np.iinfo(array.dtype).min)
    raise DataError(
        f"An array of {array.dtype} is not a recording. Give floats from -1 to 1, or signed integers of 8, 16 or 32 "
        "bits, as they were recorded."
    )


def _mono(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of the channels, which come first."""
    if array.shape[0] > array.shape[1]:
        raise DataError(f"An array of shape {array.shape} looks like (samples, channels): transpose it.")
    mean: NDArray[np.float32] = array.mean(0)
    return mean


def _joined(parts: Sequence[Transcript], language: str | None, built: TaskModel) -> Transcript:
    if len(parts) == 1:
        return parts[0]
    text = require_text(built.codec.join([part.text for part in parts], Utterance("", 0.0, language=language)))
    return Transcript(text, tuple(word for part in parts for word in part.words))


def _is_many(audio: Audio | Sequence[Audio]) -> bool:
    """A list or tuple is many recordings, unless it is a list of numbers."""
    return isinstance(audio, list | tuple) and not (len(audio) and isinstance(audio[0], int | float | np.number))


def _flow(value: object) -> str:
    from attune.plain_yaml import inline_yaml

    return inline_yaml(list(value) if isinstance(value, tuple) else value)  # type: ignore[arg-type]


def _world(device: str) -> World:
    """The ranks this process is one of, if someone has made a process group, or itself alone."""
    if dist.is_available() and dist.is_initialized():
        place = "cuda" if dist.get_backend() == "nccl" else "cpu"
        return World(dist.get_rank(), dist.get_world_size(), torch.device(place))
    try:
        return World(0, 1, choose_device(device))
    except RuntimeError as error:  # torch knows what kinds of devices there are
        raise ConfigError(f"device: there is no {device!r}. Use auto, cpu or cuda.") from error
