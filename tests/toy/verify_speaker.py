"""Speaker verification: embeddings that tell speakers apart, scored over trial pairs by the equal error rate."""

# B batch, F frames, D width
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from attune.audio.features import within
from attune.errors import DataError
from attune.files import write_text
from attune.scorers import EmbeddingScorer
from attune.scoring import bootstrap
from attune.types import Loss, Metric, Scores

EER = Metric("eer", "%", False, "Where as many target trials are rejected as impostors are accepted.")


@dataclass(frozen=True)
class VerifyConfig:
    """A trial list for each split: lines of `1|0 ID ID`, 1 where both are of one speaker."""

    trials: Mapping[str, str] = field(default_factory=dict)
    width: int = 16


class SpeakerHead(nn.Module):
    scorer_kind = "embedding"

    def __init__(self, width, embedding, speakers):
        super().__init__()
        self.projection = nn.Linear(2 * width, embedding)
        self.output = nn.Linear(embedding, speakers)

    def embed(self, frames, lengths):
        """Mean and deviation over each utterance's own frames, projected."""
        own = within(lengths, frames.shape[1])[..., None]
        positive = frames.relu() * own
        mean = positive.sum(1) / lengths[:, None]
        deviation = (((positive - mean[:, None]) * own).square().sum(1) / lengths[:, None] + 1e-6).sqrt()
        pooled = torch.cat([mean, deviation], dim=1)
        return F.linear(pooled, self.projection.weight.to(pooled.dtype), self.projection.bias.to(pooled.dtype))

    def loss(self, frames, lengths, batch):
        logits = self.output(self.embed(frames.to(self.output.weight.dtype), lengths).relu()).float()
        return Loss(F.cross_entropy(logits, batch.tokens.ids[:, 0], reduction="sum"), batch.tokens.lengths.sum())

    def scorer(self, frames, lengths):
        return EmbeddingScorer(F.normalize(self.embed(frames.double(), lengths), dim=1).float())


class VerifySpeaker:
    Config = VerifyConfig
    metrics = (EER,)
    scored_over = "set"
    needs_audio = True

    def __init__(self, config, folder):
        self.config = config
        self.speakers = json.loads((folder / "speakers.json").read_text())

    @staticmethod
    def missing_field(config, utterance):
        return None if utterance.speaker else "speaker"

    @staticmethod
    def prepare(config, utterances, folder):
        names = sorted({utterance.speaker for utterance in utterances})
        write_text(folder / "speakers.json", json.dumps(names))

    @staticmethod
    def can_reuse(config, folder, utterances):
        return False

    def target(self, utterance):
        if utterance.speaker not in self.speakers:
            raise DataError(f"{utterance.where}: speaker {utterance.speaker!r} is not in the training data.")
        return (self.speakers.index(utterance.speaker),)

    def reference(self, utterance):
        return utterance.speaker

    def frames_needed(self, target):
        return 1

    def head(self, width):
        return SpeakerHead(width, self.config.width, len(self.speakers))

    def read(self, output):
        return [round(value, 6) for value in output.vector]

    def scoring_files(self, split):
        return {"trials": self.config.trials[split]} if split in self.config.trials else {}

    def score(self, predictions, context):
        vectors = {each.id: np.array(each.value) for each in predictions if not each.is_absent}
        trials = [each for each in self._trials(predictions, context) if {*each[1:]} <= vectors.keys()]
        scores = np.array([vectors[one] @ vectors[other] for _, one, other in trials])
        is_target = np.array([label for label, _, _ in trials], bool)
        pairs = [f"{one} {other}" for _, one, other in trials]
        score = bootstrap.statistic(EER, lambda rows: eer(scores[rows], is_target[rows]), pairs)
        return Scores({"eer": score}, {"num_trials": len(trials), "num_absent": len(predictions) - len(vectors)})

    def _trials(self, predictions, context):
        """The trial list, or every pair where there is none."""
        if "trials" in context.files:
            for line in Path(context.files["trials"]).read_text().splitlines():
                label, one, other = line.split()
                yield label == "1", one, other
            return
        for place, one in enumerate(predictions):
            for other in predictions[place + 1 :]:
                yield one.reference == other.reference, one.id, other.id


def eer(scores, is_target):
    """In percent, where the two kinds of error cross."""
    if not is_target.any() or is_target.all():
        return float("nan")
    order = np.argsort(scores, kind="stable")
    rejected = np.concatenate([[0], np.cumsum(is_target[order])]) / is_target.sum()
    accepted = 1 - np.concatenate([[0], np.cumsum(~is_target[order])]) / (~is_target).sum()
    place = int(np.argmin(np.abs(rejected - accepted)))
    return 50.0 * float(rejected[place] + accepted[place])


TASK = VerifySpeaker
