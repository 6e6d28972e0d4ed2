"""A small head of every task, with a corpus of a few utterances to use it on."""

import json
from dataclasses import dataclass

import numpy as np
import soundfile

from attune import catalog
from attune.audio.decode import read_signal
from attune.tasks._mask_settings import MaskHeadConfig
from attune.tasks.classify import ClassifyConfig
from attune.tasks.convert_voice import ConvertVoiceConfig, VoiceHeadConfig
from attune.tasks.diarize import ActivityHeadConfig, DiarizeConfig
from attune.tasks.enhance import EnhanceConfig
from attune.tasks.example import ExampleConfig
from attune.tasks.fill_slots import FillSlotsConfig
from attune.tasks.recognize_phonemes import RecognizePhonemesConfig
from attune.tasks.separate import SeparateConfig
from attune.tasks.spot_queries import SpotQueriesConfig
from attune.tasks.transcribe import CtcHeadConfig, TranscribeConfig
from attune.tasks.translate import TranslateConfig, TranslationHeadConfig
from attune.tasks.verify_speaker import SpeakerHeadConfig, VerifySpeakerConfig
from attune.testing.data import DIGITS
from attune.types import SAMPLE_RATE, Prediction

import small_corpora as corpora

SMALL_CTC = CtcHeadConfig(layers=1, width=8)
SMALL_MASKS = MaskHeadConfig(layers=1, width=8)


def own_direction(utterance, folder):
    vector = np.eye(3)[int(utterance.speaker[1:]) % 3]
    return Prediction(utterance.id, vector.tolist(), utterance.speaker)


def the_sources(*roles):
    def copy(utterance, folder):
        signals = np.stack([read_signal(utterance, role) for role in roles])
        soundfile.write(folder / f"{utterance.id}.wav", signals.T, SAMPLE_RATE, subtype="FLOAT")
        return Prediction(utterance.id, None, " ".join(roles), file=f"{utterance.id}.wav")

    return copy


def own_frames(utterance, folder):
    """Frames that are the same for the same word, and for no other."""
    query = utterance.labels["role"] == "query"
    texts = utterance.text.split()
    frames = [np.random.default_rng(DIGITS.index(word)).normal(size=(12, 16)) for word in texts]
    np.save(folder / f"{utterance.id}.npy", np.concatenate(frames))
    return Prediction(utterance.id, None, "query" if query else "document", file=f"{utterance.id}.npy")


@dataclass(frozen=True)
class Case:
    """A task with its settings and data."""

    config: object
    write: object  # folder → manifest
    perfect: object = None  # a flawless prediction, where it is not the reference


def some_words(folder):
    return corpora.words(folder, "a", 4, 1)


def some_classes(folder):
    rows = [json.loads(line) for line in some_words(folder).read_text().splitlines()]
    return corpora.write(folder, "a", [{**row, "class": number % 3} for number, row in enumerate(rows)])


CASES = {
    "recognize_phonemes": Case(RecognizePhonemesConfig(head=CtcHeadConfig(layers=0, width=8)), some_words),
    "fill_slots": Case(FillSlotsConfig(head=SMALL_CTC), some_words),
    "verify_speaker": Case(
        VerifySpeakerConfig(head=SpeakerHeadConfig(width=8, pooled=12)),
        lambda folder: corpora.speakers(folder, "a", range(3), 2, 1),
        own_direction,
    ),
    "diarize": Case(
        DiarizeConfig(head=ActivityHeadConfig(width=8)), lambda folder: corpora.conversations(folder, "a", 4, 1)
    ),
    "enhance": Case(
        EnhanceConfig(head=SMALL_MASKS), lambda folder: corpora.noisy(folder, "a", 4, 1), the_sources("clean")
    ),
    "separate": Case(
        SeparateConfig(head=SMALL_MASKS), lambda folder: corpora.mixtures(folder, "a", 4, 1), the_sources("s1", "s2")
    ),
    "translate": Case(
        TranslateConfig(head=TranslationHeadConfig(1, 1, 8, 2, 0.0)),
        lambda folder: corpora.translated(folder, "a", 4, 1),
    ),
    "convert_voice": Case(
        ConvertVoiceConfig(envelope="spectrum", head=VoiceHeadConfig(1, 8, iterations=2)),
        lambda folder: corpora.parallel(folder, "a", 3, 1),
        the_sources("target"),
    ),
    "example": Case(ExampleConfig(3), some_classes),
    "spot_queries": Case(None, lambda folder: corpora.searched(folder, "a", 8, 1), own_frames),
}


WITH_HEADS = {
    **CASES,
    "classify": Case(ClassifyConfig("text"), some_words),
    "transcribe": Case(TranscribeConfig(head=SMALL_CTC), some_words),
}


def prepared(name, folder):
    """The task and its utterances."""
    own, task = WITH_HEADS[name], catalog.find(catalog.TASKS, name)
    utterances = corpora.utterances_of(own.write(folder))
    config = own.config or SpotQueriesConfig(matches={"test": str(folder / "a-matches.txt")})
    (folder / "task").mkdir()
    task.prepare(config, utterances, folder / "task")
    return task(config, folder / "task"), utterances
