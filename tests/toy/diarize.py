"""Diarization: who speaks when, for a fixed number of speakers, with permutation-invariant training; scored by DER."""

# B batch, F frames, S speakers
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from attune.audio.features import within
from attune.scorers import ActivityScorer
from attune.scoring import bootstrap
from attune.types import Loss, Metric, Scores

DER = Metric("der", "%", False, "Missed, falsely detected and confused speech over all speech; no collar.")
GRID_SECONDS = 0.01


@dataclass(frozen=True)
class DiarizeConfig:
    """How many speakers, and how long a frame of the encoder is."""

    speakers: int = 2
    frame_seconds: float = 0.03


@dataclass(frozen=True)
class Turns:
    active: torch.Tensor  # (F, S)
    frames: torch.Tensor  # ()


class ActivityHead(nn.Module):
    scorer_kind = "activity"

    def __init__(self, width, config):
        super().__init__()
        self.config = config
        self.hidden = nn.Linear(width, 32)
        self.output = nn.Linear(32, config.speakers)

    def forward(self, frames):
        hidden = F.linear(frames, self.hidden.weight.to(frames.dtype), self.hidden.bias.to(frames.dtype)).relu()
        return F.linear(hidden, self.output.weight.to(frames.dtype), self.output.bias.to(frames.dtype))

    def loss(self, frames, lengths, batch):
        logits, own = self(frames.float()), within(lengths, frames.shape[1])
        wanted = at_frames(batch.targets.active, frames.shape[1], self.config.frame_seconds)
        ways = [self._error(logits, wanted[..., list(order)], own) for order in permutations(range(logits.shape[2]))]
        return Loss(torch.stack(ways).amin(0).sum(), lengths.sum())

    def _error(self, logits, wanted, own):
        each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(2)
        return (each * own).sum(1)  # (B,)

    def scorer(self, frames, lengths):
        return ActivityScorer(self(frames.double()).float(), lengths, self.config.frame_seconds)


def at_frames(active, frames, frame_seconds):
    """What is active in the middle of each encoder frame; nothing beyond the end."""
    places = ((torch.arange(frames, device=active.device) + 0.5) * frame_seconds / GRID_SECONDS).long()
    padded = F.pad(active, (0, 0, 0, max(0, int(places[-1]) + 1 - active.shape[1])))
    return padded[:, places]


class Diarize:
    Config = DiarizeConfig
    metrics = (DER,)
    scored_over = "utterances"
    needs_audio = True

    def __init__(self, config, folder):
        self.config = config

    @staticmethod
    def missing_field(config, utterance):
        return None if utterance.segments else "segments"

    @staticmethod
    def prepare(config, utterances, folder):
        pass

    @staticmethod
    def can_reuse(config, folder, utterances):
        return True

    def target(self, utterance):
        active = torch.from_numpy(grid(self.reference(utterance), utterance.seconds, self.config.speakers))
        return Turns(active, torch.tensor(len(active)))

    def reference(self, utterance):
        return [{"start": each.start, "end": each.end, "speaker": each.speaker} for each in utterance.segments]

    def frames_needed(self, target):
        return 1

    def head(self, width):
        return ActivityHead(width, self.config)

    def read(self, output):
        """Segments of every speaker whose probability is above a half."""
        segments = []
        for speaker in range(output.frames.shape[1]):
            edges = np.flatnonzero(np.diff(np.pad(output.frames[:, speaker] > 0.5, 1).astype(int)))
            for start, end in edges.reshape(-1, 2) * output.seconds_per_frame:
                segments.append({"start": round(start, 3), "end": round(end, 3), "speaker": str(speaker)})
        return segments

    def scoring_files(self, split):
        return {}

    def score(self, predictions, context):
        found = [each for each in predictions if not each.is_absent]
        errors, speech = zip(*(self._errors(each, context) for each in found), strict=True) if found else ((), ())
        absent = len(predictions) - len(found)
        counts = {"num_error_frames": sum(errors), "num_speech_frames": sum(speech), "num_absent": absent}
        return Scores({"der": bootstrap.percent(DER, errors, speech)}, counts, {"collar": "0 s"})

    def _errors(self, prediction, context):
        seconds = context.utterance(prediction.id).seconds
        wanted = grid(prediction.reference, seconds, self.config.speakers)
        found = grid(prediction.value, seconds, self.config.speakers)
        ways = (found[:, list(order)] for order in permutations(range(self.config.speakers)))
        errors = (np.maximum(wanted.sum(1), each.sum(1)) - (wanted * each).sum(1) for each in ways)
        return min(int(each.sum()) for each in errors), int(wanted.sum())


def grid(segments, seconds, speakers):
    """Who is active in each hundredth of a second (F, S); speakers in the order of their names."""
    active = np.zeros((round(seconds / GRID_SECONDS), speakers), np.float32)
    names = sorted({each["speaker"] for each in segments})
    for each in segments:
        first, last = round(each["start"] / GRID_SECONDS), round(each["end"] / GRID_SECONDS)
        active[first:last, names.index(each["speaker"])] = 1
    return active


TASK = Diarize
