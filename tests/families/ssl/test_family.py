"""Upstreams with a head: promises of every family, layers and their weights, what learns and what is hidden."""

from dataclasses import replace

import pytest
import torch

from attune.audio.masking import draw_masks
from attune.audio.settings import MasksConfig
from attune.batches.load import Reader
from attune.corpora import open_manifest
from attune.errors import ConfigError
from attune.families.ssl import FAMILY, SslConfig
from attune.families.ssl.featurizer import LayerFeaturizer, chosen_layers
from attune.tasks.classify import Classify, ClassifyConfig
from attune.tasks.transcribe import CtcHeadConfig, Transcribe, TranscribeConfig
from attune.testing import check_family, make_corpus
from attune.training.adapt import adapt
from attune.training.settings import AdaptConfig

from tiny_upstreams import ENCODERS, make_encoder, save_s3prl
from tiny_whisper import write_whisper
from transducers import golden_folder

SPECTRA = ("mfcc", "mel", "linear", "spectrogram")
QUICK = ("wav2vec2", "wavlm-large", "mel")
SLOW = [name for name in (*ENCODERS, *SPECTRA, "whisper", "nemo", "tera", "mockingjay") if name not in QUICK]
OTHERS = [pytest.param(name, marks=pytest.mark.recipe) for name in SLOW]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return list(open_manifest(make_corpus(folder, utterances=8), folder / "index"))


@pytest.fixture(scope="module")
def task(corpus, tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("task"), ClassifyConfig(label="register")
    Classify.prepare(config, corpus, folder)
    return Classify(config, folder)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Reads a tiny checkpoint: the config of its family, its assets and its weights."""

    def read(name, **settings):
        folder, assets = tmp_path_factory.mktemp("checkpoint"), tmp_path_factory.mktemp("assets")
        if name in ENCODERS:
            make_encoder(name).save_pretrained(folder)
        elif name == "whisper":
            write_whisper(folder)
        elif name == "nemo":
            folder = golden_folder("fastconformer") / "model.nemo"
        elif name in ("tera", "mockingjay"):
            save_s3prl(name, folder := folder / "states.ckpt")
        config = SslConfig(ENCODERS[name][0] if name in ENCODERS else name, **settings)
        weights = {} if name in SPECTRA else FAMILY.importer.read(config, folder, assets).tensors
        return config, assets, weights

    return read


def model_of(opened, task, name="wav2vec2", **settings):
    config, assets, weights = opened(name, **settings)
    torch.manual_seed(5)
    model = FAMILY.build(config, task, assets).model
    model.load_state_dict(weights, strict=False)
    return model


def batch_of(corpus, task, rows=(0, 1, 2)):
    return Reader(corpus, task.target).read(rows)[0]


@pytest.mark.parametrize("name", [*QUICK, *OTHERS])
def test_every_upstream_keeps_every_promise(name, opened, corpus, task):
    config, assets, _ = opened(name)
    check_family(FAMILY, config, task, corpus[:3], assets, tolerance=1e-5)


def test_an_upstream_under_a_ctc_head_keeps_every_promise(opened, corpus, tmp_path):
    settings = TranscribeConfig(head=CtcHeadConfig(width=24, dropout=0.1))
    Transcribe.prepare(settings, corpus, tmp_path)
    config, assets, _ = opened("hubert", normalize=True)
    check_family(FAMILY, config, Transcribe(settings, tmp_path), corpus[:3], assets, tolerance=1e-5)


def test_features_are_the_weighted_sum_of_the_chosen_layers():
    layers = [torch.randn(2, 5, 4) for _ in range(4)]
    featurizer = LayerFeaturizer((4,) * 4, (0, 2, 3), normalizes=False)
    with torch.no_grad():
        featurizer.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
    shares = torch.tensor([0.5, -1.0, 2.0]).softmax(0)
    expected = shares[0] * layers[0] + shares[1] * layers[2] + shares[2] * layers[3]
    torch.testing.assert_close(featurizer(layers), expected)
    assert featurizer.layer_weights() == pytest.approx(dict(zip((0, 2, 3), shares.tolist(), strict=True)))
    normed = LayerFeaturizer((4,) * 4, (1,), normalizes=True)(layers)
    torch.testing.assert_close(normed, torch.nn.functional.layer_norm(layers[1], (4,)))


def test_layers_beyond_the_last_chosen_are_never_computed():
    def layers():
        yield torch.ones(1, 2, 3)
        raise AssertionError("computed")

    assert LayerFeaturizer((3, 3), (0,), normalizes=False)(layers()).shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("selection", "found"), [(None, (0, 1, 2, 3)), (-1, (3,)), (0, (0,)), ((2, 0), (0, 2)), ((-1, -2, 3), (2, 3))]
)
def test_layers_are_chosen_by_number_from_either_end(selection, found):
    assert chosen_layers(selection, 4) == found


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"no layer 4\. This upstream has 4, numbered 0 to 3"):
        chosen_layers((1, 4), 4)


def test_a_frozen_upstream_trains_only_the_weights_of_layers_and_the_head(opened, corpus, task):
    model = model_of(opened, task)
    adapt(model, AdaptConfig(freeze=("upstream",)), seed=1)
    batch = batch_of(corpus, task)
    model.train()
    first = model.loss(batch).total
    first.backward()
    learned = {name.partition(".")[0] for name, weight in model.named_parameters() if weight.grad is not None}
    assert learned == {"featurizer", "head"}
    assert model.featurizer.weights.grad.abs().min() > 0
    # No dropout in what does not learn: the same bits again.
    assert torch.equal(first, model.loss(batch).total)


def test_freezing_an_upstream_without_weights_is_no_mistake(task, tmp_path):
    model = FAMILY.build(SslConfig("fbank"), task, tmp_path).model
    assert adapt(model, AdaptConfig(freeze=("upstream",)), seed=1).trainable > 0


def test_a_frozen_upstream_computes_narrow_from_a_copy_that_follows_its_weights(opened, corpus, task):
    model = model_of(opened, task)
    adapt(model, AdaptConfig(freeze=("upstream",)), seed=1)
    batch = batch_of(corpus, task)
    wide = model.loss(batch).total.item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = model.loss(batch).total
        assert narrow.dtype == torch.float32
        assert narrow.item() == pytest.approx(wide, rel=0.05)
        with torch.no_grad():
            model.upstream.feature_projection.projection.weight.mul_(-1)
        assert model.loss(batch).total.item() != narrow.item()
    assert model.upstream.feature_projection.projection.weight.dtype == torch.float32
    assert not any("narrow" in name for name in model.state_dict())


def test_the_last_layers_and_lora_are_adapted_as_in_any_family(opened, task):
    model = model_of(opened, task)
    adapt(model, AdaptConfig(last_layers=1), seed=1)
    learned = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert {name.split(".")[3] for name in learned if name.startswith("upstream.encoder.layers.")} == {"2"}
    assert not any("feature_extractor" in name for name in learned)
    pytest.importorskip("peft")
    model = model_of(opened, task, "wav2vec2")
    fresh = tuple(name for name in model.state_dict() if not name.startswith("upstream."))
    adapted = adapt(model, AdaptConfig(method="lora", rank=2, targets=("q_proj", "v_proj")), seed=1, fresh=fresh)
    assert len(adapted.lora_layers) == 6


def test_an_upstream_that_learns_hides_frames_by_its_own_embedding(opened, corpus, task):
    model = model_of(opened, task).eval()
    batch = batch_of(corpus, task)
    masks = draw_masks(range(3), MasksConfig(time_part=0.5))
    before = model.loss(replace(batch, masks=masks)).total
    model.upstream.masked_spec_embed.add_(1.0)
    assert not torch.equal(before, model.loss(replace(batch, masks=masks)).total)
    # A frozen one is left alone: then its features are hidden.
    adapt(model, AdaptConfig(freeze=("upstream",)), seed=1)
    before = model.loss(replace(batch, masks=masks)).total
    model.upstream.masked_spec_embed.add_(1.0)
    assert torch.equal(before, model.loss(replace(batch, masks=masks)).total)
    assert not torch.equal(before, model.loss(batch).total)


def test_an_upstream_without_weights_to_read_says_what_it_needs(task, tmp_path):
    with pytest.raises(ConfigError, match=r"needs model\.weights: a transformers folder"):
        FAMILY.build(SslConfig("hubert"), task, tmp_path)
    with pytest.raises(ConfigError, match=r"'fbank' has no weights\. Remove model\.weights"):
        FAMILY.importer.read(SslConfig("fbank"), tmp_path, tmp_path)
    with pytest.raises(ValueError, match=r"no upstream 'huber'; did you mean 'hubert'\?"):
        SslConfig("huber")


def test_another_plug_ins_upstream_is_found_by_its_module(task, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/upstream.py").write_text("from attune.families.ssl.upstreams.fbank import UPSTREAM\n")
    assert FAMILY.build(SslConfig("own.upstream"), task, tmp_path).scorer == "label"


def test_audio_is_made_louder_before_the_upstream_and_frames_are_left_out_after_it(task, corpus, tmp_path):
    def features(audio_gain=1.0, **settings):
        model = FAMILY.build(SslConfig("linear", stack=1, **settings), task, tmp_path).model
        batch, _ = Reader(corpus, task.target).read(range(2))
        return model, *model.rules(*model._features(replace(batch, audio=batch.audio * audio_gain), None))

    _, plain, counts = features()
    _, quieter, _ = features(gain_db=-6.0)
    assert torch.equal(quieter, features(10 ** (-6 / 20))[1]) and not torch.allclose(quieter, plain)
    model, kept, fewer = features(frame_ms=20)
    assert torch.equal(kept, plain[:, ::2]) and fewer.tolist() == [-(-count // 2) for count in counts.tolist()]
    assert model.frames(16000) == -(-model.upstream.frames(16000) // 2)
    assert features(frame_ms=10)[1].shape == plain.shape


def test_features_of_another_gain_are_kept_apart(task, tmp_path):
    models = [
        FAMILY.build(SslConfig("fbank", cache=str(tmp_path), gain_db=gain), task, tmp_path).model
        for gain in (0.0, -3.0)
    ]
    assert models[0].cache.folder() != models[1].cache.folder()
