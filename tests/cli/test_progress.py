"""What a person sees of a run: on a terminal, and in a log."""

import io
import math
import time
from dataclasses import replace

import pytest

from attune.batches.micro_batch import Position
from attune.decoding.search import Search
from attune.display import Display, describe_example, real_time, show_preparing, shown
from attune.loading.data import Example
from attune.scoring.error_rates import CER, WER
from attune.stages.context import Evaluated, Stepped
from attune.stages.evaluate import Decoding, Evaluation
from attune.stages.prepare import Preparing, Understood
from attune.styles import styled
from attune.training.loop import TrainingStep
from attune.training.progress import TrainingProgress
from attune.types import Score, Scores


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


def step(number, dropped=()):
    progress = TrainingProgress(Position(step=number))
    return Stepped(TrainingStep(progress, 1.0, 1e-3, 1.0, 7.0, None, False, (), tuple(dropped)), 7.0, 0.5)


def evaluated(wer=12.34, sets=(), is_best=True):
    values = {"wer": Score(WER, wer, wer - 2.1, wer + 2.1), "cer": Score(CER, 4.0, math.nan, math.nan)}
    scores = Scores(values, {}, {"normalizer": "basic"})
    return Evaluated(50, Evaluation("dev", (), scores, (), Search(), sets=dict.fromkeys(sets, scores)), is_best)


def lines_of(*events, stream=None):
    stream = stream or io.StringIO()
    list(shown(events, Display(stream)))
    return stream.getvalue().splitlines()


def test_a_dropped_row_is_named_once_however_many_epochs_there_are():
    display = Display(io.StringIO())
    for number in (1, 2, 3):
        display.stepped(step(number, ["a.wav is not audio", f"row {number}"]), steps=10)
    lines = display.stream.getvalue().splitlines()
    assert [line for line in lines if line.startswith("dropped")] == [
        "dropped: a.wav is not audio",
        *(f"dropped: row {number}" for number in (1, 2, 3)),
    ]


def test_a_log_has_the_speed_as_a_multiple_of_real_time_and_the_time_left(monkeypatch):
    now = iter([100.0, 130.0])
    monkeypatch.setattr("attune.display.time.monotonic", lambda: next(now))
    display = Display(io.StringIO())
    display.stepped(step(1), steps=11)
    display.stepped(step(6), steps=11)
    first, second = display.stream.getvalue().splitlines()
    assert first.startswith("training: step 1/11, loss 1.000, lr 1.00e-03, 7.0× real time") and "ETA" not in first
    assert second.endswith(", ETA 0:00:30")


@pytest.mark.parametrize(
    ("rate", "text"), [(0.52, "0.5× real time"), (7.0, "7.0× real time"), (312.4, "312× real time")]
)
def test_speed_is_a_multiple_of_real_time(rate, text):
    assert real_time(rate) == text


def test_training_on_text_has_no_speed_in_audio():
    stepped = replace(step(1), audio_seconds_per_second=0.0)
    display = Display(io.StringIO())
    display.stepped(stepped, 11)
    assert "real time" not in display.stream.getvalue() and "lr 1.00e-03, " in display.stream.getvalue()


@pytest.mark.parametrize(
    ("reference", "reads", "text"),
    [("Hello.", "hello", ": hello"), (3.5, None, ": 3.5"), ("clean", None, ": clean"), ([{"start": 0.0}], None, "")],
)
def test_the_first_example_is_shown_as_it_reads_or_with_what_it_is_compared_with(reference, reads, text):
    example = Example("a", reference, "value ()", None, reads, 1.0, 50, 1)
    assert describe_example(example) == f"a, 1.00 s{text}"


def test_an_evaluation_is_a_short_line_and_its_conditions_are_shown_once():
    lines = lines_of(evaluated(), evaluated(is_best=False))
    assert lines == [
        "step 50: dev wer 12.3 % (95 % CI 10.2–14.4), cer 4.00 %, best so far",
        "  normalizer: basic",
        "step 50: dev wer 12.3 % (95 % CI 10.2–14.4), cer 4.00 %",
    ]


def test_several_sets_are_a_table():
    lines = lines_of(evaluated(sets=("be", "lt")))
    assert lines[2].split() == ["wer", "cer", "normalizer"]
    assert lines[3] == "  be  12.34 % [10.24, 14.44]  4.00 %       basic"


def test_a_word_error_rate_over_100_gets_a_hint_once():
    lines = lines_of(evaluated(130.0), evaluated(120.0))
    assert len([line for line in lines if "wer over 100 %" in line and "window=trimmed" in line]) == 1


def test_colors_are_for_terminals_and_not_where_no_color_is_set(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1mdev wer" in "\n".join(lines_of(evaluated(), stream=Terminal()))
    assert "\x1b" not in "\n".join(lines_of(evaluated()))
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("text", "error", Terminal()) == "text"


def test_an_evaluation_does_not_restart_the_time_left_of_the_training(monkeypatch):
    display, now = Display(Terminal()), time.time()
    monkeypatch.setattr("attune.display.time.time", lambda: now - 60)  # when the training began
    display.stepped(step(1), steps=11)
    display.decoding(Decoding("dev", 3, 6))
    display.stepped(step(6), steps=11)
    assert "6/11 [01:00<01:00" in display.stream.getvalue()


def test_a_preparation_that_takes_long_has_a_bar_or_lines_with_the_time_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("attune.display.time.monotonic", lambda: now[0])
    log, terminal = Display(io.StringIO()), Display(Terminal())
    for display in (log, terminal):
        now[0] = 100.0
        show = show_preparing(display)
        show(Understood("csv", ("clips.csv: read as csv",)))
        for done in range(0, 1001, 100):
            show(Preparing("train", done, 1000))
            now[0] += 2.0
        display.close()
    lines = log.stream.getvalue().splitlines()
    assert lines == ["clips.csv: read as csv", "preparing train: row 600/1000", "preparing train: row 1000/1000"]
    assert "preparing train:   0%" in terminal.stream.getvalue() and "row/s" in terminal.stream.getvalue()


def test_where_nobody_knows_how_many_rows_there_are_they_are_counted(monkeypatch):
    display = Display(Terminal())
    show_preparing(display)(Preparing("train", 640, None))
    display.close()
    assert "640 row" in display.stream.getvalue()
