"""Speech enhancement: audio in, audio out. A task and a family in one file."""

# B batch, T samples, C channels
import math
from dataclasses import dataclass

import soundfile
import torch
from torch import nn

from attune.audio.decode import read_signal
from attune.contracts import Family, TaskCodec, TaskModel
from attune.scorers import WaveformScorer
from attune.scoring import bootstrap
from attune.types import Loss, Metric, Scores

SI_SDR = Metric("si_sdr", "dB", True, "Scale-invariant signal-to-distortion ratio, mean over utterances.")


@dataclass(frozen=True)
class EnhanceConfig:
    """Which of the utterance's signals is the clean speech."""

    clean: str = "clean"


@dataclass(frozen=True)
class Clean:
    samples: torch.Tensor  # (T,)
    length: torch.Tensor  # ()


class Enhance:
    Config = EnhanceConfig
    metrics = (SI_SDR,)
    scored_over = "utterances"
    needs_audio = True

    def __init__(self, config, folder):
        self.config = config

    @staticmethod
    def missing_field(config, utterance):
        return None if config.clean in utterance.signals else f"signals.{config.clean}"

    @staticmethod
    def prepare(config, utterances, folder):
        pass

    @staticmethod
    def can_reuse(config, folder, utterances):
        return True

    def target(self, utterance):
        samples = torch.from_numpy(read_signal(utterance, self.config.clean))
        return Clean(samples, torch.tensor(len(samples)))

    def reference(self, utterance):
        return str(utterance.signals[self.config.clean])

    def frames_needed(self, target):
        return 0

    def read(self, output):
        raise NotImplementedError("audio is written beside the predictions")

    def scoring_files(self, split):
        return {}

    def score(self, predictions, context):
        found = [each for each in predictions if not each.is_absent]
        ratios = [si_sdr(read(each.reference), read(context.folder / each.file)) for each in found]
        counts = {"num_scored": len(found), "num_absent": len(predictions) - len(found)}
        return Scores({"si_sdr": bootstrap.mean(SI_SDR, ratios)}, counts)


def read(path):
    return soundfile.read(path, dtype="float64")[0]


def si_sdr(reference, estimate):
    size = min(len(reference), len(estimate))
    reference, estimate = reference[:size] - reference[:size].mean(), estimate[:size] - estimate[:size].mean()
    projection = (estimate @ reference) / max(reference @ reference, 1e-12) * reference
    noise = estimate - projection
    return 10 * math.log10(max(projection @ projection, 1e-12) / max(noise @ noise, 1e-12))


@dataclass(frozen=True)
class Config:
    weights: str | None = None
    channels: int = 8


class Filter(nn.Module):
    """A gated convolution over the waveform; what lies beyond an utterance is zero on both sides."""

    def __init__(self, config):
        super().__init__()
        self.into = nn.Conv1d(1, 2 * config.channels, 65, padding=32, bias=False)
        self.out = nn.Conv1d(config.channels, 1, 65, padding=32, bias=False)

    def forward(self, batch):
        gate, signal = self.into(batch.audio[:, None]).chunk(2, dim=1)  # (B, C, T)
        own = torch.arange(batch.audio.shape[1], device=batch.audio.device) < batch.lengths[:, None]  # (B, T)
        hidden = gate.sigmoid() * signal * own[:, None]
        return (batch.audio + self.out(hidden)[:, 0]) * own

    def loss(self, batch):
        size = batch.audio.shape[1]
        clean = nn.functional.pad(batch.targets.samples, (0, size - batch.targets.samples.shape[1]))
        return Loss((self(batch) - clean).square().sum(), batch.lengths.sum())

    def scorer(self, batch):
        return WaveformScorer(self(batch), batch.lengths)

    def frames(self, samples):
        return samples

    def graph_samples(self, samples):
        return None


TASK = Enhance
FAMILY = Family(
    config=Config,
    build=lambda config, task, assets: TaskModel(Filter(config), TaskCodec(task), "waveform"),
    architecture_settings=("channels",),
)
