import json
from pathlib import Path

import numpy as np
import torch

from attune.batches.load import _at_pace
from attune.tasks.diarize import TASK, DiarizeConfig, median_filter
from attune.tasks.diarize.head import active_frames, speaker_turns
from attune.types import Activity, Prediction, ScoringContext, SpeakerSegment, Utterance

CONTEXT = ScoringContext("dev", Path(), {}, {}.__getitem__)


def test_threshold_and_filter_are_chosen_by_the_dev_predictions_and_used_from_then_on(tmp_path):
    task = TASK(DiarizeConfig(), tmp_path)
    weak = np.zeros((100, 2), np.float32)
    weak[20:60, 0] = 0.45  # below the threshold of a half
    output = Activity(weak, 0.01)
    assert task.read(output)["segments"] == []
    reference = [{"start": 0.2, "end": 0.6, "speaker": "a"}]
    task.tune([Prediction("x", task.read(output), reference)], CONTEXT, tmp_path)
    assert json.loads((tmp_path / "tuned.json").read_text())["threshold"] in (0.3, 0.4)
    again = TASK(DiarizeConfig(), tmp_path)  # as an evaluation of the run makes it
    assert again.read(output)["segments"] == [{"start": 0.2, "end": 0.6, "speaker": "0"}]
    scores = again.score([Prediction("x", again.read(output), reference)], CONTEXT)
    assert scores.values["der"].value == 0
    assert scores.conditions["collar"] == "0 s on each side"


def test_the_median_filter_drops_what_is_short_and_fills_gaps():
    active = np.array([0, 1, 0, 0, 0, 1, 1, 1, 0, 1, 1, 0], bool)
    assert median_filter(active, 3).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0]
    assert median_filter(active, 1) is active


def test_frames_are_labeled_at_their_middle_and_a_whole_chunk_of_speech_is_speech():
    segments = [SpeakerSegment(0.0, 1.0, "a"), SpeakerSegment(0.26, 0.5, "b")]
    turns = speaker_turns(segments, ["a", "b"])
    batch = type(turns)(turns.times[None], turns.speakers[None])
    active = active_frames(batch, 4, 2, 0.25)[0]
    assert torch.equal(active, torch.tensor([[1.0, 0], [1, 1], [1, 0], [1, 0]]))


def test_segments_follow_a_changed_speed():
    utterance = Utterance("x", 2.0, segments=(SpeakerSegment(0.5, 1.0, "a"),))
    assert _at_pace(utterance, 1.1).segments[0] == SpeakerSegment(0.55, 1.1, "a")
