"""The encoders against transformers' own, and each utterance against itself in any company."""

import json
from pathlib import Path

import pytest
import torch
import transformers

from attune import catalog
from attune.errors import ModelError
from attune.families.ssl.upstream import UPSTREAMS

from tiny_upstreams import ENCODERS, make_encoder
from upstream_checks import farthest, layers_of, open_upstream, recordings


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    return recordings(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Opens a checkpoint: transformers' model and attune's upstream of the same weights."""

    def open_checkpoint(name):
        model, folder, assets = make_encoder(name), tmp_path_factory.mktemp(name), tmp_path_factory.mktemp("assets")
        model.save_pretrained(folder)
        return model, open_upstream(ENCODERS[name][0], folder, assets)

    return open_checkpoint


def layers_of_transformers(model, row):
    """All layers as transformers has them; the last with the norm that S3PRL counts to it."""
    if isinstance(model, transformers.Wav2Vec2BertModel):
        extractor = transformers.SeamlessM4TFeatureExtractor()
        inputs = dict(extractor(row.numpy(), sampling_rate=16_000, return_tensors="pt"))
    else:
        row = row.double()
        inputs = {"input_values": ((row - row.mean()) / (row.var(unbiased=False) + 1e-7).sqrt()).float()[None]}
    with torch.inference_mode():
        found = model(**inputs, output_hidden_states=True)
    return [*(layer[0] for layer in found.hidden_states[:-1]), found.last_hidden_state[0]]


@pytest.mark.parametrize("name", ENCODERS)
def test_every_layer_is_transformers_own_and_does_not_depend_on_the_batch(name, saved, audio):
    model, upstream = saved(name)
    alone = [layers_of(upstream, [row])[0] for row in audio]
    for row, layers in zip(audio, alone, strict=True):
        assert len(layers) == len(upstream.widths)
        assert farthest(layers, layers_of_transformers(model, row)) < 1e-5
    for rows in (range(4), [3, 0], [0, 1] * 4):
        for row, layers in zip(rows, layers_of(upstream, [audio[row] for row in rows]), strict=True):
            assert farthest(alone[row], layers) < 1e-5


def test_an_upstream_tells_its_stride_layers_and_widths(saved):
    _, upstream = saved("hubert")
    assert (upstream.stride, upstream.widths) == (320, (32,) * 4)


def test_the_shortest_sound_there_can_be_has_a_frame(saved):
    for name in ("wav2vec2", "bert"):
        _, upstream = saved(name)
        assert [len(layers[0]) for layers in layers_of(upstream, [torch.ones(1), torch.ones(399)])] == [1, 1]


def test_another_kind_of_model_is_refused_by_name(tmp_path):
    make_encoder("hubert").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"of type 'hubert'; expected 'wavlm'\. Set model\.upstream=hubert"):
        catalog.find(UPSTREAMS, "wavlm").read(tmp_path, Path())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("position_embeddings_type", ["relative"]),
        ("num_attention_heads", 5),
        ("hidden_size", 10**9),
        ("conv_dim", [16]),
        ("hidden_act", {"a": 1}),
        ("layer_norm_eps", "small"),
        ("num_hidden_layers", True),
    ],
)
def test_a_damaged_description_is_refused_by_the_key(key, value, tmp_path):
    make_encoder("conformer").save_pretrained(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**described, key: value}))
    with pytest.raises(ModelError, match=key):
        catalog.find(UPSTREAMS, "wav2vec2_conformer").read(tmp_path, tmp_path)
