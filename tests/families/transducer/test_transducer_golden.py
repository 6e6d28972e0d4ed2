"""NeMo's own numbers for its own models, clip by clip: features, encoders, nets, losses, gradients, results."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file

from attune.decoding.predict import prepare_for_decoding
from attune.decoding.search import Search, search
from attune.families.transducer import FAMILY, TransducerConfig
from attune.families.transducer.names import to_nemo
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.types import Utterance

from tiny import batch_of
from transducers import GOLDEN, golden_folder


@dataclass
class Model:
    built: Any
    tensors: dict[str, torch.Tensor]
    expected: dict[str, Any]
    audio: list[np.ndarray]

    @property
    def model(self):
        return self.built.model

    @property
    def clips(self):
        return list(enumerate(self.expected["clips"]))

    def batch(self, *indices):
        clips = [self.expected["clips"][index] for index in indices]
        rows = [
            (clip["id"], self.audio[index], tuple(clip["token_ids"]))
            for index, clip in zip(indices, clips, strict=True)
        ]
        return batch_of(rows)


@pytest.fixture(scope="module", params=GOLDEN)
def model(request, tmp_path_factory):
    folder, assets = golden_folder(request.param), tmp_path_factory.mktemp("assets")
    config = TransducerConfig(weights=str(folder / "model.nemo"))
    weights = FAMILY.importer.read(config, folder / "model.nemo", assets).tensors
    built = FAMILY.build(config, Transcribe(TranscribeConfig(), assets), assets)
    built.model.load_state_dict(weights)
    built.model.eval()
    expected = json.loads((folder / "expected.json").read_text())
    audio = [soundfile.read(folder / clip["file"], dtype="float32")[0] for clip in expected["clips"]]
    return Model(built, load_file(folder / "expected.safetensors"), expected, audio)


def farthest(one, other):
    return float((one - other).abs().max())


@torch.no_grad()
def test_features_encoder_and_prediction_net_of_each_clip_alone(model):
    for index, clip in model.clips:
        batch = model.batch(index)
        mels, counts = model.model.preprocessor(batch.audio, batch.lengths)
        assert counts.tolist() == [clip["mel_frames"]]
        assert farthest(mels[0, :, : counts[0]], model.tensors[f"alone.{index}.mel"][:, : counts[0]]) <= 1e-5
        frames, lengths = model.model.encode(batch)
        assert lengths.tolist() == [clip["encoder_frames"]] == [model.model.frames(clip["samples"])]
        assert farthest(frames[0, : lengths[0]].T, model.tensors[f"alone.{index}.encoder"]) <= 1e-5
        said = model.model.decoder.prediction(batch.tokens.ids)
        assert farthest(said[0].T, model.tensors[f"alone.{index}.pred"]) <= 1e-6


@torch.no_grad()
def test_joint_log_probabilities(model):
    batch, joint = model.batch(0), model.model.joint
    frames, lengths = model.model.encode(batch)
    encoded, predicted = joint.project(frames, model.model.decoder.prediction(batch.tokens.ids))
    log_probs = joint.logits(encoded[0, :, None], predicted[0, None]).log_softmax(-1)
    assert farthest(log_probs[: lengths[0]], model.tensors["alone.0.joint_log_probs"][: lengths[0]]) <= 1e-4


@torch.no_grad()
def test_loss_of_each_clip_alone_and_of_all_together(model):
    for index, clip in model.clips:
        for name, value in clip["loss"].items():
            set_lattice(model, name)
            assert float(model.model.loss(model.batch(index)).total) == pytest.approx(value, rel=1e-5)
    for name in model.expected["clips"][0]["loss"]:
        set_lattice(model, name)
        total = sum(clip["loss"][name] for _, clip in model.clips)
        assert float(model.model.loss(model.batch(3, 0, 2, 1)).total) == pytest.approx(total, rel=1e-5)


def set_lattice(model, name):
    """The loss as it was computed there: FastEmit never shows in the value, and sigma is in the name."""
    sigma = 0.02 if "sigma0.02" in name else 0.0
    model.model.lattice = replace(model.model.lattice, sigma=sigma, fastemit=0.0)


def test_gradient_norms_of_every_weight(model):
    if "grad_norms" not in model.expected:
        pytest.skip("no gradients were recorded for TDT")
    for name, norms in model.expected["grad_norms"].items():
        model.model.lattice = replace(model.model.lattice, fastemit=float(name.removeprefix("fastemit")))
        model.model.zero_grad()
        model.model.loss(model.batch(1)).total.backward()
        named = {each: weight.grad for each, weight in model.model.named_parameters()}
        found = to_nemo(named, model.model.shape)
        assert found.keys() == norms.keys()
        # Softmax takes no notice of what is added to all keys: that bias has no gradient but rounding.
        real = {each: norm for each, norm in norms.items() if not each.endswith("linear_k.bias")}
        assert max(abs(float(found[each].norm()) / norm - 1) for each, norm in real.items()) <= 1e-4
        assert all(float(found[each].norm()) < 1e-6 for each in norms.keys() - real.keys())


def test_the_clips_are_spelled_as_there(model):
    for _, clip in model.clips:
        utterance = Utterance(clip["id"], 1.0, text=clip["text"])
        assert model.built.codec.target(utterance) == tuple(clip["token_ids"])


@torch.no_grad()
@pytest.mark.parametrize("order", [(0,), (0, 1, 2, 3), (3, 1, 2, 0)])
def test_greedy_results_are_those_of_the_clip_alone_in_any_company(model, order):
    found = search(model.model.scorer(model.batch(*order)), Search())
    for index, hypothesis in zip(order, found, strict=True):
        clip = model.expected["clips"][index]
        assert list(hypothesis.tokens) == clip["greedy"]["ids"]
        assert model.built.codec.read(hypothesis) == clip["greedy"]["text"]


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["greedy", "beam"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_an_encoder_in_half_precision_differs_little_and_is_searched_in_full_precision(model, precision, kind):
    settings = Search(kind, **({"beam": 4} if kind == "beam" else {}), precision=precision)
    batch = model.batch(0, 1, 2, 3)
    scorer = prepare_for_decoding(model.built, settings).model.scorer(batch)
    full = model.model.scorer(batch)
    assert scorer.frames.dtype == torch.float32
    difference = max(farthest(scorer.frames[row, :own], full.frames[row, :own]) for row, own in enumerate(full.lengths))
    assert 0 < difference < 0.05 * float(full.frames.abs().max())
    assert all(np.isfinite(found.score) and found.tokens for found in search(scorer, settings))
    assert all(weight.dtype == torch.float32 for weight in model.model.parameters())


@torch.no_grad()
def test_company_and_padding_leave_features_as_they_are_and_frames_within_rounding(model):
    together = model.batch(0, 1, 2, 3)
    mels, _ = model.model.preprocessor(together.audio, together.lengths)
    frames, lengths = model.model.encode(together)
    for index, _ in model.clips:
        batch = model.batch(index)
        alone, counts = model.model.preprocessor(batch.audio, batch.lengths)
        assert torch.equal(alone[0, :, : counts[0]], mels[index, :, : counts[0]])
        encoded, _ = model.model.encode(batch)
        own = int(lengths[index])
        assert farthest(encoded[0, :own], frames[index, :own]) <= 1e-5
