"""Events of a stage as a person sees them: a live bar on a terminal or in a notebook, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from attune.report.tables import describe_score, metric_label, without_repeats

if TYPE_CHECKING:
    from attune.stages.context import Evaluated, Event, Finished, Started, Stepped
    from attune.stages.evaluate import Decoding, Evaluation
    from attune.training.adapt import Adapted
    from attune.types import Scores

LINE_EVERY_SECONDS = 10.0
MOST_PROBLEMS = 10  # to show of an evaluation
T = TypeVar("T")


class Display:
    """Draws to one stream; knows whether it is a terminal or a notebook's."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_notebook = stream is sys.stdout and in_notebook()
        self.is_live = stream.isatty() or self.is_notebook
        self._bar: Any = None
        self._what = ""  # the bar is about
        self._next_line = 0.0
        self._rate: float | None = None

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.clear()
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def decoding(self, event: Decoding) -> None:
        """How far an evaluation has come."""
        if event.total:
            self._advance(f"decoding {event.split}", event.done, event.total, "utt", "")
        if event.done >= event.total:
            self._close()

    def stepped(self, event: Stepped, steps: int) -> None:
        """One optimizer step."""
        step = event.step
        number = step.progress.position.step
        smooth = self._rate or event.audio_seconds_per_second
        self._rate = 0.9 * smooth + 0.1 * event.audio_seconds_per_second
        figures = f"loss {step.loss:.3f}, lr {step.lr:.2e}, {self._rate:.0f} s/s, {event.memory_gib:.1f} GiB"
        if into_epoch := step.progress.position.epoch_seconds:  # a stream: nobody knows how long an epoch is
            figures += f", {into_epoch / 3600:.2f} h into epoch {step.progress.position.epoch}"
        if step.skipped:
            self.say(f"step {number} skipped: {step.skipped} ({', '.join(step.skipped_ids[:5])} …)")
        for reason in step.dropped:
            self.say(f"dropped: {reason}")
        self._advance("training", number, steps, "step", figures)

    def _advance(self, what: str, done: int, total: int, unit: str, figures: str) -> None:
        if self.is_live:
            self._advance_bar(what, done, total, unit, figures)
        elif time.monotonic() >= self._next_line or done == total:
            self._next_line = time.monotonic() + LINE_EVERY_SECONDS
            self.say(f"{what}: {unit} {done}/{total}" + (f", {figures}" if figures else ""))

    def _advance_bar(self, what: str, done: int, total: int, unit: str, figures: str) -> None:
        if self._bar is None or self._what != what:
            self._close()
            self._what = what
            options = {"file": self.stream, "leave": False, "miniters": 1, "mininterval": 0.2, "dynamic_ncols": True}
            self._bar = _tqdm(self.is_notebook)(total=total, initial=done, desc=what, unit=f" {unit}", **options)
        self._bar.set_postfix_str(figures, refresh=False)
        self._bar.update(done - self._bar.n)

    def _close(self) -> None:
        if self._bar is not None:
            # A notebook keeps what it shows: of the bars, the one of the whole training.
            self._bar.leave = self.is_notebook and self._what == "training" and self._bar.n >= self._bar.total
            self._bar.close()
        self._bar = None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and getattr(get_ipython(), "kernel", None) is not None


def _tqdm(is_notebook: bool) -> Any:
    """The bar of a terminal, or of notebooks: a widget where ipywidgets is installed, text elsewhere."""
    if not is_notebook:
        from tqdm import tqdm

        return tqdm
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that ipywidgets is not there
        from tqdm.auto import tqdm as auto

    return auto


def drawn(stage: Generator[Decoding, None, T], display: Display | None) -> T:
    """Run an evaluation to its end, drawing how far it is, and return its result."""
    from attune.stages import drain

    return drain(stage, display.decoding) if display else drain(stage)


def shown(events: Iterable[Event], display: Display) -> Iterator[Event]:
    """Draw training events as they pass by."""
    from attune.stages.context import Evaluated, Finished, Saved, Started, Stepped
    from attune.stages.evaluate import Decoding

    steps = 0
    for event in events:
        match event:
            case Started():
                steps = event.recipe.train.last_step
                _show_start(event, display)
            case Stepped():
                display.stepped(event, steps)
            case Decoding():
                display.decoding(event)
            case Evaluated():
                _show_scores(event, display)
            case Saved():
                pass  # the log has it; a person does not need to know
            case Finished():
                _show_finish(event, display)
        yield event


def _show_start(event: Started, display: Display) -> None:
    from attune.corpora import CorpusSample
    from attune.stages.evaluate import describe_sample

    kept = event.selection
    for damage in event.damaged:
        display.say(f"{damage.folder} is damaged and passed over: {damage.reason}")
    if kept:
        hours = f"{len(kept.rows):,} utterances, {kept.seconds / 3600:.2f} h"
        lost = f" ({kept.too_long} too long and {kept.too_short} too short left out)" if kept.left_out_seconds else ""
        display.say(f"training set: {hours}{lost}; model: {_parameters(event.parameters)}")
    else:
        display.say(f"training set: a stream of shards; model: {_parameters(event.parameters)}")
    for share in event.mix:
        display.say(
            f"  {share.name}: {share.utterances:,} utterances, {share.seconds / 3600:.2f} h, {share.times:.4g} times "
            f"an epoch: {share.drawn:,} utterances, {share.part:.1%} of its audio"
        )
    if isinstance(event.dev, CorpusSample):
        display.say(f"dev: {describe_sample(len(event.dev), event.dev.total)}; the final scores have all")
    if event.new_tensors:
        display.say(f"randomly initialized: {', '.join(event.new_tensors[:6])}")
    for note in event.notes:
        display.say(note)
    if event.example:
        display.say(f"first example: {event.example.id}, {event.example.seconds:.2f} s: {event.example.reads}")
        display.say(f"  learned as {event.example.target_line}")
    for change in event.observed:
        display.say(f"changed from here on: {change}")
    for change, old, new in event.rescheduled:
        display.say(f"{change}: the learning rate of step {event.step + 1} goes from {old:.3e} to {new:.3e}")
    if event.step:
        display.say(f"{event.run.folder}: going on from step {event.step} of {event.recipe.train.last_step}")
    else:
        display.say(f"{event.run.folder}: starting; the same command continues it")


def _parameters(adapted: Adapted) -> str:
    learning = "" if adapted.trainable == adapted.total else f", {adapted.trainable / 1e6:.2f} M of them learning"
    return f"{adapted.total / 1e6:.2f} M parameters{learning}"


def _show_scores(event: Evaluated, display: Display) -> None:
    scores = event.evaluation.scores
    names = without_repeats(scores.values, scores.conditions)
    conditions = "".join(f", {name} {value}" for name, value in scores.conditions.items())
    best = " (best so far)" if event.is_best else ""
    display.say(f"step {event.step}: {event.evaluation.title} {_listed(scores, names)}{conditions}{best}")
    for name, own in event.evaluation.sets.items():
        display.say(f"  {name}: {_listed(own, names)}")
    _show_absent(event.evaluation, display)


def _listed(scores: Scores, names: Sequence[str]) -> str:
    return ", ".join(f"{metric_label(name)} {describe_score(scores.values[name])}" for name in names)


def _show_absent(evaluation: Evaluation, display: Display) -> None:
    """The scores are of fewer utterances than the set has: nobody should have to guess that from them."""
    if not evaluation.absent:
        return
    total = f"{len(evaluation.predictions):,} utterances"
    display.say(f"{evaluation.split}: {evaluation.absent:,} of {total} without a prediction")
    for problem in evaluation.problems[:MOST_PROBLEMS]:
        display.say(f"  {problem}")
    if len(evaluation.problems) > MOST_PROBLEMS:
        display.say(f"  … log.jsonl has all {len(evaluation.problems):,}")


def _show_finish(event: Finished, display: Display) -> None:
    settings = event.recipe.train
    if event.stalled_at:
        stopped = f"stopped early at step {event.stalled_at} of {settings.last_step}"
        display.say(f"{stopped}: {settings.keep_best} was not better in the last {settings.patience} scorings")
    verb = "done" if event.steps_taken else "nothing left to train"
    if not event.averaged:
        display.say(f"{verb}: {event.run.model} is the model of step {event.best_step}")
        return
    display.say(f"{verb}: {event.run.model} is the mean of the models of steps {', '.join(map(str, event.averaged))}")
    if settings.average and len(event.averaged) < settings.average:
        asked = f"  train.average asks for {settings.average}, and no more were saved"
        display.say(f"{asked}: lower train.save_every for that")
