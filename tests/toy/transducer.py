"""A family of transducers over characters, small enough to train while one waits."""

from dataclasses import dataclass, replace

import torch

from attune.audio.masking import mask_features
from attune.contracts import Family, FrameTimes, TaskModel, VocabularyRules
from attune.families._pieces import PieceCodec
from attune.testing.family import _lattice_loss
from attune.types import Loss

from transducers import LstmTransducer

HOP = 800
BINS = 40
PIECES = ("▁", *"abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True)
class Config:
    weights: str | None = None
    tdt: bool = False


class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        durations = (0, 1, 2) if config.tdt else ()
        self.net = LstmTransducer(len(PIECES) + 1, BINS, durations, width=16, hidden=32)

    def frames(self, samples):
        return samples // HOP

    def graph_samples(self, samples):
        return None

    def scorer(self, batch):
        rows = zip(batch.audio, batch.lengths.tolist(), strict=True)
        return self.net.scorer(masked(batch, [self._spectrum(audio[: length // HOP * HOP]) for audio, length in rows]))

    def loss(self, batch):
        return Loss(_lattice_loss(self.scorer(batch), batch), batch.tokens.lengths.sum())

    def _spectrum(self, audio):
        spectrum = torch.fft.rfft(audio.view(-1, HOP)).abs()[:, : 4 * BINS]
        return (spectrum.view(-1, BINS, 4).mean(2) + 0.1).log()


def masked(batch, spectra):
    if not batch.masks:
        return spectra
    rows = (
        (each, replace(batch.masks, draws=draws[None])) for each, draws in zip(spectra, batch.masks.draws, strict=True)
    )
    return [mask_features(each[None], torch.tensor([len(each)]), masks)[0] for each, masks in rows]


def encode(utterance):
    return tuple(PIECES.index(letter) for word in utterance.text.split() for letter in ("▁", *word))


def decode(tokens):
    return "".join(PIECES[token] for token in tokens).replace("▁", " ").strip()


def build(config, task, assets):
    codec = PieceCodec(PIECES, encode, decode)
    return TaskModel(Model(config), codec, "transducer", times=FrameTimes(HOP / 16_000))


FAMILY = Family(config=Config, build=build, vocabulary=VocabularyRules(is_own=lambda config: True))
