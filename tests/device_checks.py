"""Every family on a simulated device: it trains and decodes there as on the CPU, and nothing mixes devices.

`test_simulated_device.py` runs this in a process of its own. Where there is a CUDA device, it is taken instead.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import attune
from attune.audio.masking import draw_masks
from attune.batches.load import Reader
from attune.corpora import open_manifest
from attune.decoding import ctc_alignment, transducer, transducer_alignment
from attune.decoding.ctc_alignment import ForcedTokens
from attune.decoding.search import Search
from attune.decoding.settings import SearchConfig
from attune.decoding.streaming import StreamDecoder
from attune.families.aed import FAMILY as AED
from attune.families.aed import AedConfig
from attune.families.lm import FAMILY as LM
from attune.families.lm import LmConfig
from attune.families.ssl import FAMILY as SSL
from attune.families.ssl import SslConfig
from attune.families.transducer import FAMILY as TRANSDUCER
from attune.families.transducer import TransducerConfig
from attune.families.whisper import FAMILY as WHISPER
from attune.families.whisper import WhisperConfig
from attune.families.whisper.replay import ReplayedStep, Scene
from attune.loading.language_models import search_of
from attune.recipe import load
from attune.site import this_site
from attune.stages.context import Saved
from attune.stages.train import Request, train
from attune.tasks.language_model import TASK as LANGUAGE_MODEL
from attune.tasks.language_model import LanguageModelConfig
from attune.tasks.transcribe import CtcHeadConfig, Transcribe, TranscribeConfig
from attune.testing import make_corpus
from attune.text.arpa import write_arpa
from attune.text.kneser_ney import estimate
from attune.training.adapt import adapt
from attune.training.micro import Eager, graph_shape, padded
from attune.training.precision import narrowed
from attune.training.settings import AdaptConfig
from attune.world import World

from on_both_devices import DEVICE, IS_CUDA, MASKS, beams, decoded, on_both, placed, require_alike, require_same
from simulated_device import MixedDevices, Waits, recording
from task_cases import WITH_HEADS, prepared
from tiny import write_recipe
from tiny_upstreams import ENCODERS, make_encoder, save_s3prl
from tiny_whisper import MULTILINGUAL, write_whisper

of_the_simulation = pytest.mark.skipif(torch.cuda.is_available(), reason="tests the simulation")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    manifest = make_corpus(folder, utterances=12, vocabulary=("a", "b"))
    return sorted(open_manifest(manifest, folder / "index"), key=lambda each: each.seconds)[1:4]


@pytest.fixture(scope="module")
def task(corpus, tmp_path_factory):
    """Text in characters, for a small head."""
    folder, config = tmp_path_factory.mktemp("task"), TranscribeConfig(head=CtcHeadConfig(layers=1, width=8))
    Transcribe.prepare(config, corpus, folder)
    return Transcribe(config, folder)


AED_CASES = {"tiny": "adamw8bit", "tiny-conformer": "adafactor", "tiny-transformer": "adadelta"}
RULES = {"temperature": 1.2, "end_threshold": 100.0, "max_attention_shift": 50, "coverage": 0.5}


@pytest.mark.parametrize("size", AED_CASES)
def test_attention_models(size, task, corpus, tmp_path):
    def searches(built, world):
        plain, joint = beams(built, rows, world, tmp_path), beams(built, rows, world, tmp_path, ctc_weight=0.4)
        return (joint[0],) if size == "tiny-transformer" else (Search(temperature=0.7), *plain, *joint)

    config, rows = AedConfig(size=size, tokens="task", **RULES), corpus[:2]
    require_same(lambda: AED.build(config, task, Path()), rows, searches, optimizer=AED_CASES[size])


TRANSDUCERS = {
    "fastconformer": {"encoder": "fastconformer", "durations": (0, 1, 2), "fastemit": 0.01},
    "contextnet": {"encoder": "contextnet"},
    "conformer": {"encoder": "conformer", "gradient_checkpointing": True},
    "stateless": {"encoder": "contextnet", "prediction": "stateless", "joint_cells": 50, "batch_norm": "frozen"},
    # Which look-ahead a micro-batch has is drawn after the dither, which a CUDA device draws elsewhere.
    "streaming": {"encoder": "fastconformer", "look_aheads": (3,) if IS_CUDA else (3, 1)},
}


@pytest.mark.parametrize("name", TRANSDUCERS)
def test_transducers(name, task, corpus, tmp_path):
    config = TransducerConfig(size="dummy", tokens="task", **TRANSDUCERS[name])
    require_same(
        lambda: TRANSDUCER.build(config, task, Path()),
        corpus[:2],
        lambda built, world: beams(built, corpus, world, tmp_path),
        lambda built, world: aligned(built, corpus, world),
    )


def aligned(built, rows, world):
    """The frames of given tokens, by the best path."""
    batch, _ = Reader(rows, built.codec.target).read(range(len(rows)))
    given = [ForcedTokens(tuple(built.codec.target(each))[:3]) for each in rows]
    align = transducer_alignment.align if built.scorer == "transducer" else ctc_alignment.align
    with torch.inference_mode():
        return align(built.model.eval().scorer(batch.to(world.device)), given)


def test_streams(task):
    config = TransducerConfig(encoder="fastconformer", size="dummy", tokens="task", look_aheads=(1, 0))

    def run(world):
        built = placed(lambda: TRANSDUCER.build(config, task, Path()), world)
        built.model.eval()
        decoder, generator = StreamDecoder(built), np.random.default_rng(1)
        streams = [decoder.open(), decoder.open()]
        for size in (3000, 5000):
            decoder.feed(streams, [generator.normal(size=size).astype(np.float32) for _ in streams])
        decoder.feed(streams, [np.zeros(0, np.float32)] * 2, is_last=True)
        return [stream.found for stream in streams]

    on_both(run)


@pytest.mark.parametrize("name", WITH_HEADS)
def test_heads_of_every_task(name, tmp_path):
    task, rows = prepared(name, tmp_path)
    beam = [Search("beam", 2)] if name == "translate" else []
    require_same(lambda: SSL.build(SslConfig(stack=1), task, tmp_path), rows[:2], lambda built, world: beam)


def test_ctc_with_every_beam_and_alignment(task, corpus, tmp_path):
    def run(world):
        built = placed(lambda: SSL.build(SslConfig(), task, Path()), world)
        words = tmp_path / "words.arpa"
        write_arpa(estimate([["ab", "ba"], ["ba"]], 2), words)
        by_words = search_of(SearchConfig(search="beam", beam=2, lm=str(words)), built, this_site(), world)
        found = decoded(built, corpus, world, *beams(built, corpus, world, tmp_path), by_words)
        return found, aligned(built, corpus, world)

    on_both(run)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Reads a tiny checkpoint, with a head for a task."""

    def read(name, task, adaptation=None, **settings):
        folder, assets = tmp_path_factory.mktemp("checkpoint"), tmp_path_factory.mktemp("assets")
        if name in ENCODERS:
            make_encoder(name).save_pretrained(folder)
        elif name == "whisper":
            write_whisper(folder)
        elif name in ("tera", "mockingjay"):
            save_s3prl(name, folder := folder / "states.ckpt")
        config = SslConfig(ENCODERS[name][0] if name in ENCODERS else name, **settings)
        weights = {} if name in SPECTRA else SSL.importer.read(config, folder, assets).tensors

        def build(**more):
            built = SSL.build(replace(config, **more), task, assets)
            built.module.load_state_dict(weights, strict=False)
            if adaptation:
                adapt(built.module, adaptation, 1)
            return built

        return build

    return read


SPECTRA = ("fbank", "mfcc", "mel", "linear", "spectrogram")
UPSTREAMS = (*ENCODERS, *SPECTRA, "whisper", "tera", "mockingjay")


@pytest.mark.parametrize("name", UPSTREAMS)
def test_upstreams_under_a_head(name, opened, task, corpus):
    require_same(opened(name, task), corpus)


def test_a_frozen_upstream(opened, task, corpus):
    require_same(opened("hubert", task, AdaptConfig(freeze=("upstream",))), corpus)


def test_adapters(opened, task, corpus):
    pytest.importorskip("peft")
    require_same(opened("hubert", task, AdaptConfig(method="lora", rank=2, targets=("q_proj",))), corpus)


@pytest.mark.parametrize("freeze", [("upstream",), ("upstream", "featurizer")])
def test_kept_features(freeze, opened, task, corpus, tmp_path):
    build = opened("hubert", task, AdaptConfig(freeze=freeze), normalize=True)

    def run(world):
        built, losses = placed(lambda: build(cache=str(tmp_path / world.device.type)), world), []
        for _ in range(2):  # computed and kept, then read
            batch, _ = Reader(corpus, built.codec.target, cached=built.cache.lookup()).read([0, 1, 2])
            losses.append(built.model.loss(batch.to(world.device)).total)
            losses[-1].backward()
        assert batch.cached.layers is not None
        return [float(each.detach()) for each in losses], built.cache.folder().name

    on_both(run)


def whisper(folder, language=None, vocabulary=1769, mels=80, **settings):
    """Builds a tiny Whisper."""
    model = write_whisper(folder / "model", vocabulary, mels)
    config = WhisperConfig(weights=str(model), **settings)
    weights = WHISPER.importer.read(config, model, folder).tensors

    def build():
        built = WHISPER.build(config, Transcribe(TranscribeConfig(language=language), folder), folder)
        built.module.load_state_dict(weights)
        return built

    return build


@pytest.mark.parametrize("window", ["trimmed", "full"])
def test_whisper(window, corpus, tmp_path):
    rows = corpus[:2]

    def times(built, world):
        found = decoded(built, rows, world, Search())[0]
        prompts, _ = Reader(rows, built.codec.prompt).read(range(len(rows)))
        return built.model.align(prompts.to(world.device), found)

    def searches(built, world):
        found = beams(built, rows, world, tmp_path)
        return found[:1] if window == "trimmed" else (Search(fallback=True), *found)

    require_same(whisper(tmp_path, window=window, gradient_checkpointing=window == "full"), rows, searches, times)


def test_languages_are_detected(corpus, tmp_path):
    build = whisper(tmp_path, vocabulary=MULTILINGUAL, mels=128, window="trimmed")
    on_both(lambda world: decoded(placed(build, world), corpus[:2], world, Search(), Search("beam", 2)))


def test_timestamps_are_learned_and_windows_packed(corpus, tmp_path):
    settings = {"timestamps": True, "pack": True, "label_smoothing": 0.1, "language": "be"}
    build = whisper(tmp_path, vocabulary=MULTILINGUAL, mels=128, window="trimmed", **settings)
    require_same(build, corpus[:2])


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_language_models(kind, corpus, tmp_path):
    config = LanguageModelConfig()
    LANGUAGE_MODEL.prepare(config, corpus, tmp_path)
    task = LANGUAGE_MODEL(config, tmp_path)
    require_same(lambda: LM.build(LmConfig(kind=kind, size="tiny"), task, tmp_path), corpus)


@pytest.mark.parametrize("optimizer", ["adamw8bit", "adamw"])
def test_a_run_is_stopped_resumed_and_evaluated(optimizer, tmp_path):
    path = write_recipe(tmp_path, utterances=8)
    settings = [
        f"optimizer.name={optimizer}",
        "train.steps=4",
        "train.eval_every=2",
        "train.save_every=2",
        "task.head.dropout=0",  # chance is not the same on two devices
        "decode.search=beam",
    ]

    def run(world):
        folder = tmp_path / world.device.type
        recipe = load(path, [*settings, "decode.beam=2", "batches.micro_seconds=2", f"run={folder}"]).recipe
        for stop in (2, None):
            for event in train(recipe, Request(["attune"]), this_site(workers=0), world):
                if isinstance(event, Saved) and event.step == stop:
                    break
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if line["event"] == "step"]

    on_both(run)


def test_recordings_are_recognized_aligned_and_cut_along_timestamps(corpus, tmp_path):
    write_whisper(tmp_path / "theirs", MULTILINGUAL, mels=128)
    audio = [attune.load_audio(each.audio) for each in corpus[:2]]

    def run(world):
        name = world.device.type
        recognizer = attune.load(tmp_path / "theirs", device=name, language="be")
        by_windows = attune.load(tmp_path / "theirs", device=name, chunking="timestamps", language="be")
        words = recognizer.transcribe_detailed(audio)
        return words, recognizer.align(audio[0], "ab c"), by_windows.transcribe_detailed(audio[:1])

    on_both(run)


def test_features_of_an_upstream(tmp_path):
    make_encoder("hubert").save_pretrained(tmp_path)
    audio = [np.random.default_rng(1).normal(size=size).astype(np.float32) for size in (4000, 7000)]
    on_both(lambda world: attune.load_upstream("hubert", tmp_path, device=world.device.type).layers(audio))


@of_the_simulation
def test_a_buffer_that_stayed_on_the_cpu_is_caught(task, corpus):
    world = World.alone(DEVICE)
    built = placed(lambda: AED.build(AedConfig(size="tiny", tokens="task"), task, Path()), world)
    norm = built.model.front_end.norm
    norm.mean = norm.mean.cpu()
    with pytest.raises(MixedDevices, match="one device"):
        decoded(built, corpus, world, Search())


@of_the_simulation
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_of_whisper_can_be_recorded(precision, corpus, tmp_path):
    build, device = whisper(tmp_path, window="trimmed"), torch.device(DEVICE)
    built = placed(build, World.alone(device.type))
    batch, _ = Reader(corpus, built.codec.target).read([0, 1])
    batch = replace(batch, masks=draw_masks(range(2), MASKS))
    wider = padded(batch, graph_shape(batch, built.model.graph_samples(batch.audio.shape[1])), device)
    expected = Eager(built.model.train(), precision, device)(batch, 1.0)
    with recording(), narrowed(precision, device):
        loss = built.model.loss(wider)
    assert float(loss.total.detach()) == pytest.approx(float(expected.total), rel=1e-4 if precision == "fp32" else 0.05)


@of_the_simulation
@torch.inference_mode()
def test_a_token_of_whisper_can_be_recorded(corpus, tmp_path):
    built = placed(whisper(tmp_path, window="trimmed"), World.alone(DEVICE))
    batch, _ = Reader(corpus, built.codec.prompt).read([0, 1])
    scorer = built.model.eval().scorer(batch.to(torch.device(DEVICE)))
    scorer.advance(torch.tensor(scorer.prefixes, device=scorer.device))
    step, tokens = ReplayedStep(scorer.decoder, Scene(scorer.encoded, scorer.mask, scorer.cache)), [[65], [66]]
    step.tokens.copy_(torch.tensor(tokens))
    step.place.fill_(scorer.position)
    with recording():
        found = step._run()
    require_alike(found.cpu(), scorer.advance(torch.tensor(tokens, device=scorer.device)).cpu())


@of_the_simulation
@torch.inference_mode()
@pytest.mark.parametrize("settings", [{"durations": (0, 1, 2)}, {"prediction": "stateless"}])
def test_a_greedy_search_of_transducers_can_be_recorded(settings, task, corpus):
    config = TransducerConfig(encoder="contextnet", size="dummy", tokens="task", **settings)
    built = placed(lambda: TRANSDUCER.build(config, task, Path()), World.alone(DEVICE))
    batch, _ = Reader(corpus, built.codec.prompt).read([0, 1])
    loop = transducer._Loop(built.model.eval().scorer(batch.to(torch.device(DEVICE))), 10)
    rows = loop.start()
    _, expected = loop.steps(rows)
    with recording():
        _, found = loop.steps(rows)
    assert found.tokens.tolist() == expected.tokens.tolist()


FAR = torch.ones(3, device=DEVICE)
REFUSED = {
    "two devices": lambda: FAR + torch.ones(3),
    "an index of the device": lambda: torch.ones(3)[FAR.long()],
    "a number to stack": lambda: torch.stack([FAR[0], torch.tensor(1.0)]),
    "a number to write to": lambda: torch.tensor(1.0).add_(FAR[0]),
    "numpy": lambda: FAR.numpy(),
    "an array": lambda: np.asarray(FAR),
    "an address": lambda: FAR.data_ptr(),
    "lengths of the device": lambda: pack_padded_sequence(FAR[None, :, None], FAR[:1].long() * 3, batch_first=True),
    "a network on the CPU": lambda: torch.nn.LSTM(3, 3)(FAR[None]),
    "a window on the CPU": lambda: torch.stft(FAR.repeat(9), 8, window=torch.ones(8), return_complex=True),
}


@of_the_simulation
@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused(name):
    with pytest.raises((MixedDevices, RuntimeError), match="device|numpy|CPU"):
        REFUSED[name]()


@of_the_simulation
@pytest.mark.parametrize(
    "wait",
    [
        lambda: FAR.tolist(),
        lambda: FAR[0].item(),
        lambda: bool(FAR.any()),
        lambda: FAR[FAR > 0],
        lambda: FAR.cpu(),
        lambda: torch.ones(3).to(FAR.device),
        lambda: torch.tensor([1.0], device=FAR.device),
        lambda: FAR[torch.tensor([0])],
    ],
)
def test_what_no_graph_can_hold_is_not_recorded(wait):
    wait()
    with recording(), pytest.raises(Waits):
        wait()


@of_the_simulation
def test_what_cuda_accepts_is_accepted():
    assert (FAR * torch.tensor(2.0)).tolist() == [2, 2, 2]
    assert FAR[torch.tensor([0, 2])].device.type == FAR.masked_fill(FAR > 2, torch.tensor(1.0)).device.type == "far"
    assert torch.arange(3, device=FAR.device).to("cpu").numpy().tolist() == [0, 1, 2]
    assert FAR.new_zeros(2).cpu().copy_(FAR[:2]).tolist() == [1, 1]
