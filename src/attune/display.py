"""Events of a stage as a person sees them: a live bar on a terminal or in a notebook, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import timedelta
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from attune.report.tables import brief_score, brief_value, sets_table
from attune.styles import Style, duration, styled

if TYPE_CHECKING:
    from attune.loading.data import Example
    from attune.stages.context import Evaluated, Event, Finished, Started, Stepped
    from attune.stages.evaluate import Decoding, Evaluation
    from attune.stages.prepare import Preparing, Understood
    from attune.training.adapt import Adapted
    from attune.types import Scores

LINE_EVERY_SECONDS = 10.0
LINE_WIDTH = 100
TRAINING = "training"  # the bar of all steps
MOST_PROBLEMS = 10  # to show of an evaluation
HOPELESS = 100.0  # a word error rate in percent
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
        self._began: dict[str, tuple[float, int]] = {}  # when, and at which count
        self._reported: set[str] = set()

    def say(self, text: str, style: Style | None = None) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.clear()
        self.stream.write(f"{styled(text, style, self.stream) if style else text}\n")
        self.stream.flush()

    def say_once(self, text: str, style: Style | None = None) -> None:
        """A line that stays, unless this display has shown it before."""
        if text not in self._reported:
            self._reported.add(text)
            self.say(text, style)

    def decoding(self, event: Decoding) -> None:
        """Progress of an evaluation."""
        self.progress(f"decoding {event.split}", event.done, event.total, "utt")

    def progress(self, what: str, done: int, total: int | None, unit: str) -> None:
        """Progress of something that ends when `done` reaches `total`, if anyone knows that."""
        if total != 0:
            self._advance(what, done, total, unit, "")
        if total is not None and done >= total:
            self.close()

    def stepped(self, event: Stepped, steps: int) -> None:
        """One optimizer step."""
        step = event.step
        number = step.progress.position.step
        smooth = self._rate or event.audio_seconds_per_second
        self._rate = 0.9 * smooth + 0.1 * event.audio_seconds_per_second
        speed = f", {real_time(self._rate)}" if self._rate else ""  # text has none
        figures = f"loss {step.loss:.3f}, lr {step.lr:.2e}{speed}, {event.memory_gib:.1f} GiB"
        if into_epoch := step.progress.position.epoch_seconds:  # a stream: nobody knows how long an epoch is
            figures += f", {into_epoch / 3600:.2f} h into epoch {step.progress.position.epoch}"
        if step.skipped:
            self.say(f"step {number} skipped: {step.skipped} ({', '.join(step.skipped_ids[:5])} …)", "warning")
        for reason in step.dropped:
            self.say_once(f"dropped: {reason}", "warning")
        for text in event.slow_ranks:
            self.say(text, "warning")
        self._advance(TRAINING, number, steps, "step", figures)

    def _advance(self, what: str, done: int, total: int | None, unit: str, figures: str) -> None:
        if self.is_live:
            self._advance_bar(what, done, total, unit, figures)
            return
        now = time.monotonic()
        if what not in self._began or done < self._began[what][1]:  # the next evaluation of the same set
            self._began[what] = (now, done)
        if done and (now >= self._next_line or done == total):
            self._next_line = now + LINE_EVERY_SECONDS
            count = f"{what}: {unit} {done}{'' if total is None else f'/{total}'}"
            parts = [count, figures, time_left(self._began[what], (now, done), total or 0)]
            self.say(", ".join(filter(None, parts)))

    def _advance_bar(self, what: str, done: int, total: int | None, unit: str, figures: str) -> None:
        if self._bar is None or self._what != what:
            self.close()
            self._what = what
            if what != TRAINING or what not in self._began:  # evaluations do not restart the clock of the training
                self._began[what] = (time.time(), done)
            start, first = self._began[what]
            shown_at_first = {"initial": first, "total": total, "desc": what, "unit": f" {unit}"}
            options = {"leave": False, "miniters": 1, "mininterval": 0.2, "dynamic_ncols": True, "delay": 1e-6}
            self._bar = bar_type(self.is_notebook)(file=self.stream, **shown_at_first, **options)
            self._bar.start_t, self._bar.n, self._bar.last_print_n = start, done, done
            self._bar.set_postfix_str(figures)
        self._bar.set_postfix_str(figures, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """End the bar, if there is one."""
        if self._bar is not None:
            # A notebook keeps what it shows: of the bars, the one of the whole training.
            self._bar.leave = self.is_notebook and self._what == TRAINING and self._bar.n >= self._bar.total
            self._bar.close()
        self._bar = None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and getattr(get_ipython(), "kernel", None) is not None


def bar_type(is_notebook: bool) -> Any:
    """The bar of a terminal, or of notebooks: a widget where ipywidgets is installed, text elsewhere."""
    if not is_notebook:
        from tqdm import tqdm

        return tqdm
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that ipywidgets is not there
        from tqdm.auto import tqdm as auto

    return auto


def time_left(first: tuple[float, int], now: tuple[float, int], total: int) -> str:
    """The time that is left by two moments and how much was done then, for a log; a bar has its own."""
    (start, begun), (moment, done) = first, now
    if done <= begun or done >= total:
        return ""
    return f"ETA {timedelta(seconds=round((moment - start) / (done - begun) * (total - done)))}"


def real_time(seconds_per_second: float) -> str:
    """The speed of training: seconds of audio in a second."""
    digits = 0 if seconds_per_second >= 10 else 1
    return f"{seconds_per_second:.{digits}f}× real time"


def drawn(stage: Generator[Decoding, None, T], display: Display | None) -> T:
    """Run an evaluation to its end, drawing how far it is, and return its result."""
    from attune.stages import drain

    return drain(stage, display.decoding) if display else drain(stage)


def show_preparing(display: Display) -> Callable[[Preparing | Understood], None]:
    """Draw how data was understood and how far its preparation is; in a log, only one that takes long."""
    from attune.stages.prepare import Understood

    began = time.monotonic()

    def show(event: Preparing | Understood) -> None:
        if isinstance(event, Understood):
            for note in event.notes:
                display.say(note)
        elif display.is_live or time.monotonic() > began + LINE_EVERY_SECONDS:
            done = event.done if event.total is None else min(event.done, event.total)
            display.progress(f"preparing {event.split}", done, event.total, "row")

    return show


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

    for damage in event.damaged:
        display.say(f"{damage.folder} is damaged and skipped: {damage.reason}", "warning")
    display.say(f"training set: {_training_set(event)}; model: {_parameters(event.parameters)}")
    for share in event.mix:
        display.say(
            f"  {share.name}: {share.utterances:,} utterances, {duration(share.seconds)}; per epoch "
            f"{share.drawn:,} utterances ({share.times:.4g}×), {share.part:.1%} of the audio"
        )
    for leak in event.leaks:
        display.say(f"warning: {leak}")
    if isinstance(event.dev, CorpusSample):
        final = "" if event.recipe.train.final_utterances else "; the final scores use all"
        display.say(f"dev: {describe_sample(len(event.dev), event.dev.total)}{final}")
    if event.new_tensors:
        display.say(f"randomly initialized: {', '.join(event.new_tensors[:6])}")
    for note in event.notes:
        display.say(fill(note, LINE_WIDTH, subsequent_indent="  "))
    if event.example:
        display.say(f"first example: {describe_example(event.example)}")
        display.say(f"  target: {event.example.target_line}")
    for change in event.observed:
        display.say(f"changed from here on: {change}")
    for change, old, new in event.rescheduled:
        display.say(f"{change}: the learning rate of step {event.step + 1} changes from {old:.3e} to {new:.3e}")
    display.say(f"{event.run.name}: {_where_it_is(event.step, event.recipe.train.last_step)}")


def describe_example(example: Example) -> str:
    """Its id, its length and what it reads; where targets are no tokens, what predictions are compared with."""
    reads = example.reference if example.reads is None else example.reads
    what = f": {reads}" if isinstance(reads, str | int | float) else ""
    length = f", {example.seconds:.2f} s" if example.seconds else ""  # a text without audio has none
    return f"{example.id}{length}{what}"


def _training_set(event: Started) -> str:
    kept = event.selection
    if not kept:
        return "a stream of shards"
    lost = f" (left out: {kept.too_long:,} too long, {kept.too_short:,} too short)" if kept.left_out_seconds else ""
    if not kept.seconds:
        return f"{len(kept.rows):,} texts"
    return f"{len(kept.rows):,} utterances, {duration(kept.seconds)}{lost}"


def _where_it_is(step: int, steps: int) -> str:
    if not step:
        return "starting; run the same command to resume"
    return f"finished, {steps} steps" if step >= steps else f"resuming at step {step} of {steps}"


def _parameters(adapted: Adapted) -> str:
    trainable = "" if adapted.trainable == adapted.total else f", {adapted.trainable / 1e6:.2f} M trainable"
    return f"{adapted.total / 1e6:.2f} M parameters{trainable}"


def _show_scores(event: Evaluated, display: Display) -> None:
    evaluation, scores = event.evaluation, event.evaluation.scores
    first, *others = [name for name in scores.values if not name.startswith("raw_")]
    figures = [f"{first} {brief_score(scores.values[first])}"]
    figures += [f"{name} {brief_value(scores.values[name])}" for name in others]
    head = styled(f"{evaluation.title} {figures[0]}", "bold", display.stream)
    best = [styled("best so far", "good", display.stream)] if event.is_best else []
    display.say(f"step {event.step}: {', '.join([head, *figures[1:], *best])}")
    if scores.conditions:
        display.say_once("  " + ", ".join(f"{name}: {value}" for name, value in scores.conditions.items()))
    if evaluation.sets:
        display.say(indent(sets_table(evaluation.sets), "  "))
    _show_hint(scores, display)
    _show_absent(evaluation, display)


def _show_hint(scores: Scores, display: Display) -> None:
    """What a word error rate over 100 % usually means."""
    if "wer" in scores.values and scores.values["wer"].value > HOPELESS:
        display.say_once(
            "  wer over 100 %: more insertions than words. Normal in the first steps; of a Whisper with "
            "model.window=trimmed, in the first 50.",
            "warning",
        )


def _show_absent(evaluation: Evaluation, display: Display) -> None:
    """The scores are of fewer utterances than the set has: nobody should have to guess that from them."""
    if not evaluation.absent:
        return
    total = f"{len(evaluation.predictions):,} utterances"
    display.say(f"{evaluation.split}: {evaluation.absent:,} of {total} without a prediction", "warning")
    for problem in evaluation.problems[:MOST_PROBLEMS]:
        display.say_once(f"  {problem}")
    if len(evaluation.problems) > MOST_PROBLEMS:
        display.say_once(f"  … log.jsonl has all {len(evaluation.problems):,}")


def _model(event: Finished) -> str:
    return f"{event.run.name}/{event.run.model.name}"


def _show_finish(event: Finished, display: Display) -> None:
    settings = event.recipe.train
    if event.stalled_at:
        stopped = f"stopped early at step {event.stalled_at} of {settings.last_step}"
        display.say(f"{stopped}: no better {settings.keep_best} in {settings.patience} evaluations")
    verb = "done" if event.steps_taken else "nothing left to train"
    steps = ", ".join(map(str, event.averaged))
    what = f"the average of steps {steps}" if event.averaged else f"the model of step {event.best_step}"
    display.say(f"{verb}: {_model(event)} has {what}", "bold")
    if event.averaged and settings.average and len(event.averaged) < settings.average:
        display.say(f"  train.average={settings.average}, but no more were saved: lower train.save_every")
    if event.retained:
        display.say(event.retained)
    for failure in event.failures:
        display.say(f"tracker stopped: {failure} (the run continued without it)", "warning")
    if event.report:
        where = f"{event.run.name}/{event.report.name}" if event.run.address else event.report
        display.say(f"report: {where} (open it in a browser)")
