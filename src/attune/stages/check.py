"""Look at an experiment before it runs: its data, its plan, its rates, and the first example as the model will see it.

What is wrong is listed, not raised, so that one look shows all of it. Nothing is written but to a folder that is gone
afterwards.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import compress, islice
from pathlib import Path
from typing import Literal

import numpy as np

from attune import catalog
from attune.batches.plan import Plan, padding_share
from attune.contracts import TextTask
from attune.corpora import (
    SHARDS,
    Corpus,
    Leak,
    RowProblem,
    expand_shards,
    fetch_manifest,
    find_leaks,
    inspect_corpus,
    open_corpus,
    select,
)
from attune.errors import AttuneError, DataError, TooLong
from attune.loading.begin import BegunModel, begin_model
from attune.loading.data import (
    Example,
    first_example,
    frames_of,
    planner,
    read_back,
    samples_in,
    training_reader,
    training_rows,
    with_steps,
    worst_micro_batch,
)
from attune.loading.language_models import search_of
from attune.loading.pretrained import LoadedModel, ModelFolders
from attune.loading.sharing import open_optimizer
from attune.recipe import Recipe
from attune.site import Site
from attune.stages.context import schedule_of
from attune.stages.evaluate import Decoding, fetch_scoring_files, kept_metric
from attune.stages.score_floor import ScoreFloor, score_floor
from attune.text.tokenizers.characters import UNREADABLE
from attune.training.adapt import Adapted
from attune.types import Utterance
from attune.world import World

TRAIN, DEV, TEST = "train", "dev", "test"
SAMPLES = 20  # of a stream to look at


@dataclass(frozen=True, slots=True)
class RowsCheck:
    """What a manifest or a split holds, and the rows that cannot be used."""

    name: str
    utterances: int
    speakers: int
    seconds: float
    shortest_seconds: float
    longest_seconds: float
    bad_rows: tuple[RowProblem, ...]
    bad_audio: tuple[RowProblem, ...]
    decoded: int  # utterances of which the audio was decoded

    @property
    def is_sound(self) -> bool:
        """Whether there are rows, and nothing is wrong with any."""
        return self.utterances > 0 and not self.bad_rows and not self.bad_audio


@dataclass(frozen=True, slots=True)
class SplitCheck:
    """A split as the recipe sees it: training leaves out the too short and too long, evaluation scores them too."""

    rows: RowsCheck
    too_short: int
    too_long: int
    outside_seconds: float  # of the too short and too long together
    too_long_at: tuple[str, ...] = ()  # where the first of them are written
    bad_targets: tuple[RowProblem, ...] = ()  # what cannot be learned or, in an evaluation set, scored
    long_rows: tuple[RowProblem, ...] = ()  # too long for the model, and dealt with as data.long_rows says
    unknown: Mapping[str, int] = field(default_factory=dict)  # character or label never output → utterances with it
    floor: ScoreFloor | None = None  # where flawless predictions do not have a perfect score


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """The first epoch, and its micro-batch with the most padded audio."""

    steps_per_epoch: int
    micros: int
    epochs: float  # in all of training
    padding_share: float
    worst_utterances: int
    worst_seconds: float  # padded
    worst_longest: tuple[str, ...]  # ids


@dataclass(frozen=True, slots=True)
class RecipeCheck:
    """What there is to know about an experiment before it runs; absent is what a trouble hides."""

    bad_rows_policy: Literal["fail", "drop"]
    splits: tuple[SplitCheck, ...]
    rates: tuple[tuple[int, float], ...]  # step and learning rate
    plan: PlanCheck | None
    parameters: Adapted | None
    new_tensors: tuple[str, ...]  # those that the pretrained weights do not give
    example: Example | None
    troubles: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what there is to say about the weights
    leaks: tuple[Leak, ...] = ()  # what dev and test share with the training set
    needs_audio: bool = True

    @property
    def can_run(self) -> bool:
        """Whether nothing that was found will stop training or evaluation."""
        # The policy is no excuse for an utterance without a reference: a score over fewer would be another score.
        if self.troubles or any(split.bad_targets for split in self.splits if split.rows.name != TRAIN):
            return False
        is_clean = all(split.rows.is_sound and not split.bad_targets for split in self.splits)
        return is_clean or self.bad_rows_policy == "drop"


def check_manifest(source: str, audio: int | None, site: Site) -> Generator[Decoding, None, RowsCheck]:
    """Look at one manifest alone, decoding so many utterances, or all; yields how far decoding has come."""
    with tempfile.TemporaryDirectory() as scratch:
        path = fetch_manifest(source, site.cache)
        corpus = open_corpus(path.name, [path], Path(scratch))
        return (yield from _check_rows(corpus, audio, site))


def check_recipe(recipe: Recipe, audio: int | None, site: Site) -> Generator[Decoding, None, RecipeCheck]:
    """Look at everything a recipe names, and decode so many utterances of each split, or all; yields how far that is.

    What costs seconds is checked first: where it would stop a run, no audio is decoded.
    """
    troubles: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        corpora = _open_all(recipe, Path(folder), site, troubles)
        streamed = _look_into_stream(recipe, troubles)
        train = corpora.get(TRAIN)
        plan = _plan(recipe, train, troubles) if train else None
        stepped = _with_steps(recipe, train, troubles)
        # The vocabulary of a stream takes a pass over all of it; a model with its own can be checked.
        learned = train if train or not _has_own_vocabulary(recipe) else streamed
        begun = _begin(recipe, learned, Path(folder), site, troubles) if learned else None
        if begun:
            _check_evaluation(recipe, begun.loaded, site, troubles)
            troubles += _unlearnable(streamed, recipe, begun.loaded)
        needs_audio = begun is None or begun.loaded.task.needs_audio
        order = map(train.__getitem__, plan.order) if train and plan else streamed
        splits = []
        for corpus in corpora.values():
            rows = yield from _check_rows(corpus, 0 if troubles or not needs_audio else audio, site)
            split = _check_split(recipe, corpus, rows, begun)
            if begun and corpus.name != TRAIN:
                split = replace(split, floor=score_floor(corpus, begun.loaded, Path(folder), site))
            splits.append(split)
        return RecipeCheck(
            bad_rows_policy=recipe.data.bad_rows,
            splits=tuple(splits),
            rates=_rates(stepped) if stepped else (),
            plan=_describe(stepped, train, plan) if train and plan and stepped else None,
            parameters=begun.adapted if begun else None,
            new_tensors=begun.init.new_tensors if begun else (),
            example=first_example(order, begun.loaded) if begun else None,
            troubles=tuple(troubles),
            notes=begun.init.notes if begun else (),
            leaks=find_leaks(train, {name: each for name, each in corpora.items() if name != TRAIN}) if train else (),
            needs_audio=needs_audio,
        )


@contextmanager
def _gathering(troubles: list[str], prefix: str = "") -> Iterator[None]:
    """Keep what a user's mistake says, and go on."""
    try:
        yield
    except AttuneError as error:
        troubles.append(f"{prefix}{error}")


def _open_all(recipe: Recipe, scratch: Path, site: Site, troubles: list[str]) -> dict[str, Corpus]:
    named = {TRAIN: recipe.data.train, DEV: recipe.data.dev, TEST: recipe.data.test}
    corpora = {}
    for split, sources in named.items():
        with _gathering(troubles, f"data.{split}: "):
            if sources:
                corpora[split] = open_corpus(split, [fetch_manifest(source, site.cache) for source in sources], scratch)
                if not len(corpora[split]):
                    raise DataError("No valid row.")
    return corpora


def _look_into_stream(recipe: Recipe, troubles: list[str]) -> list[Utterance]:
    """The first utterances of a stream; there is no telling what the others are."""
    if recipe.data.stream is None:
        return []
    with _gathering(troubles, "data.stream: "):
        shards = expand_shards(recipe.data.stream.shards, SHARDS)
        found = list(islice(samples_in(shards[0], 0), SAMPLES))
        if recipe.data.bad_rows == "fail":
            troubles.extend(f"data.stream: {each.problem}" for each in found if each.utterance is None)
        streamed = [each.utterance for each in found if each.utterance is not None]
        seconds = [each.seconds for each in streamed]
        shortest, longest = recipe.data.min_seconds, recipe.data.longest_seconds
        if seconds and not any(shortest <= each <= longest for each in seconds):
            troubles.append(
                f"data.stream: the first utterances are {min(seconds):.2f} to {max(seconds):.2f} s long; training "
                f"takes {shortest:g} to {longest:g} s (data.min_seconds, data.max_seconds)."
            )
        return streamed
    return []


def _has_own_vocabulary(recipe: Recipe) -> bool:
    family = catalog.find(catalog.FAMILIES, recipe.model.family)
    return family.vocabulary.is_own(recipe.model.config)


def _unlearnable(streamed: Sequence[Utterance], recipe: Recipe, loaded: LoadedModel) -> list[str]:
    """What training would stop at among the first utterances of a stream."""
    data = recipe.data
    inside = [each for each in streamed if data.min_seconds <= each.seconds <= data.longest_seconds]
    problems, _ = _check_targets(inside, loaded, is_learned=True)
    return [
        f"data.stream: {problem.where}: {problem.reason}"
        for problem, is_long in problems
        if not (data.drops_long_rows if is_long else data.bad_rows == "drop")
    ]


def _plan(recipe: Recipe, corpus: Corpus, troubles: list[str]) -> Plan | None:
    with _gathering(troubles):
        plan = planner(recipe, corpus, training_rows(recipe, corpus))(0)
        return replace(plan, order=plan.order % len(corpus))  # in a mix, a row may have several turns
    return None


def _with_steps(recipe: Recipe, corpus: Corpus | None, troubles: list[str]) -> Recipe | None:
    """The recipe with its number of steps; None where nothing is there to count epochs in."""
    if recipe.train.epochs is None:
        return recipe
    found: list[str] = []  # without rows, _plan lists why
    with _gathering(found):
        return with_steps(recipe, corpus, training_rows(recipe, corpus) if corpus else None)
    troubles += [each for each in found if each not in troubles]
    return None


def _begin(
    recipe: Recipe, learned: Iterable[Utterance], scratch: Path, site: Site, troubles: list[str]
) -> BegunModel | None:
    with _gathering(troubles):
        begun = begin_model(recipe, learned, ModelFolders(scratch / "task", scratch / "assets"), site, World.alone())
        training_reader(recipe, None, begun.loaded, site)  # lists the noises and rooms that augment names
        open_optimizer(recipe, begun.loaded, begun.init.new_tensors, World.alone())
        return begun
    return None


def _check_evaluation(recipe: Recipe, loaded: LoadedModel, site: Site, troubles: list[str]) -> None:
    """What would be found wrong only after hours of training."""
    with _gathering(troubles):
        kept_metric(recipe, loaded.task)
    with _gathering(troubles):
        fetch_scoring_files(recipe, loaded.task, site)
    for config in filter(None, (recipe.decode, recipe.decode.final)):
        with _gathering(troubles):
            search_of(config, loaded.task_model, site, World.alone())


def _check_rows(corpus: Corpus, audio: int | None, site: Site) -> Generator[Decoding, None, RowsCheck]:
    bad_audio: list[RowProblem] = []
    count = len(corpus) if audio is None else min(audio, len(corpus))
    if count:
        yield Decoding(corpus.name, 0, count)
        rows = np.arange(count) * len(corpus) // count  # spread over the whole manifest
        for done, problem in enumerate(inspect_corpus(corpus, max(1, site.workers), rows), 1):
            bad_audio += [problem] if problem else []
            yield Decoding(corpus.name, done, count)
    return RowsCheck(
        name=corpus.name,
        utterances=len(corpus),
        speakers=len({utterance.speaker for utterance in corpus} - {None}),
        seconds=float(corpus.seconds.sum()),
        shortest_seconds=float(corpus.seconds.min()) if len(corpus) else 0.0,
        longest_seconds=float(corpus.seconds.max()) if len(corpus) else 0.0,
        bad_rows=corpus.problems,
        bad_audio=tuple(bad_audio),
        decoded=count,
    )


def _check_split(recipe: Recipe, corpus: Corpus, rows: RowsCheck, begun: BegunModel | None) -> SplitCheck:
    inside = select(corpus, recipe.data.min_seconds, recipe.data.longest_seconds)
    too_long = np.flatnonzero(corpus.seconds > recipe.data.longest_seconds)[:SAMPLES]
    too_long_at = tuple(corpus[int(row)].where for row in too_long)
    found = SplitCheck(rows, inside.too_short, inside.too_long, inside.left_out_seconds, too_long_at)
    if begun is None:
        return found
    is_learned = corpus.name == TRAIN
    used = np.full(len(corpus), not is_learned)
    used[inside.rows] = True
    problems, unknown = _check_targets(compress(corpus, used), begun.loaded, is_learned)
    # A recipe that drops or splits expects long rows.
    expects_long = recipe.data.drops_long_rows if is_learned else recipe.data.long_rows in ("split", "drop")
    long = tuple(problem for problem, is_long in problems if is_long and expects_long)
    bad = tuple(problem for problem, is_long in problems if not (is_long and expects_long))
    return replace(found, bad_targets=bad, long_rows=long, unknown=unknown)


def _check_targets(
    utterances: Iterable[Utterance], loaded: LoadedModel, is_learned: bool
) -> tuple[list[tuple[RowProblem, bool]], dict[str, int]]:
    """The utterances that cannot be learned or scored, and whether for their length; what the model cannot output."""
    problems: list[tuple[RowProblem, bool]] = []
    unknown: Counter[str] = Counter()
    can_output = cache(partial(_can_output, loaded))
    for utterance in utterances:
        try:
            _require_usable(utterance, loaded, is_learned)
            unknown.update(_unknown_in(utterance, loaded, can_output))
        except DataError as error:
            reason = str(error).removeprefix(f"{utterance.where}: ")
            problems.append((RowProblem(utterance.where, utterance.id, reason), isinstance(error, TooLong)))
    return problems, dict(sorted(unknown.items(), key=lambda item: (-item[1], item[0])))


def _require_usable(utterance: Utterance, loaded: LoadedModel, is_learned: bool) -> None:
    if utterance.audio is None and loaded.task.needs_audio:
        raise DataError(f"utterance {utterance.id!r} has no audio. Add `audio` to its row, or remove the row.")
    if not is_learned:
        loaded.task.reference(utterance)
        loaded.task_model.codec.prompt(utterance)
        return
    target = loaded.task_model.codec.target(utterance)
    frames, needed = frames_of(utterance, loaded), loaded.task_model.codec.frames_needed(target)
    if frames < needed:
        raise DataError(
            f"utterance {utterance.id!r} needs {needed} frames for its target; its {utterance.seconds:.2f} s of "
            f"audio give {frames}. Correct its text, or remove the row."
        )


def _unknown_in(utterance: Utterance, loaded: LoadedModel, can_output: Callable[[str], bool]) -> set[str]:
    """The label, or the characters of the text, that the model has no output for."""
    reference = loaded.task.reference(utterance)
    if not isinstance(reference, str):
        return set()
    try:
        reads = read_back(utterance, loaded)
    except DataError:  # only a label can be unknown as a whole; a text may be too long to be learned
        return set() if isinstance(loaded.task, TextTask) else {reference}
    return {character for character in reference if not can_output(character)} if UNREADABLE in str(reads) else set()


def _can_output(loaded: LoadedModel, character: str) -> bool:
    return UNREADABLE not in str(read_back(Utterance(character, 1.0, text=character), loaded))


def _rates(recipe: Recipe) -> tuple[tuple[int, float], ...]:
    """The learning rate of the first and the last step, at the end of the warmup, halfway, and around a restart."""
    schedule, settings = schedule_of(recipe), recipe.train
    steps = {1, max(1, settings.warmup), max(1, settings.last_step // 2), settings.last_step}
    if settings.restart_every:
        first = settings.warmup + settings.restart_every
        steps |= {step for step in (first, first + 1) if step < settings.last_step}
    return tuple((step, schedule.at(step)) for step in sorted(steps))


def _describe(recipe: Recipe, corpus: Corpus, plan: Plan) -> PlanCheck:
    worst = worst_micro_batch(corpus, plan)
    return PlanCheck(
        steps_per_epoch=plan.steps,
        micros=plan.micros,
        epochs=recipe.train.last_step / plan.steps,
        padding_share=padding_share(corpus.seconds, plan),
        worst_utterances=len(worst.rows),
        worst_seconds=worst.padded_seconds,
        worst_longest=worst.longest,
    )
