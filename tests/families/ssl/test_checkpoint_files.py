"""Checkpoints of fairseq and S3PRL: the same features as from transformers' folder, and nothing in them is run."""

import argparse
import re
import sys
import types

import pytest
import torch

from attune import catalog
from attune.errors import ModelError
from attune.families.ssl.upstream import UPSTREAMS

from tiny_upstreams import ENCODERS, make_encoder, save_s3prl
from upstream_checks import farthest, layers_of, open_upstream, recordings

TO_FAIRSEQ = (  # transformers' names and fairseq's
    (r"^masked_spec_embed$", "mask_emb"),
    (r"^feature_projection\.projection\.", "post_extract_proj."),
    (r"^feature_projection\.layer_norm\.", "layer_norm."),
    (r"(conv_layers\.\d+)\.conv\.", r"\1.0."),
    (r"pos_conv_embed\.conv\.parametrizations\.weight\.original0", "pos_conv.0.weight_g"),
    (r"pos_conv_embed\.conv\.parametrizations\.weight\.original1", "pos_conv.0.weight_v"),
    (r"pos_conv_embed\.conv\.", "pos_conv.0."),
    (r"pos_conv_embed\.layers\.(\d+)\.conv\.", r"pos_conv.\1.0."),
    (r"\.attention\.rel_attn_embed\.", ".self_attn.relative_attention_bias."),
    (r"\.attention\.gru_rel_pos_linear\.", ".self_attn.grep_linear."),
    (r"\.attention\.gru_rel_pos_const", ".self_attn.grep_a"),
    (r"\.attention\.", ".self_attn."),
    (r"(encoder\.layers\.\d+)\.layer_norm\.", r"\1.self_attn_layer_norm."),
    (r"\.feed_forward\.intermediate_dense\.", ".fc1."),
    (r"\.feed_forward\.output_dense\.", ".fc2."),
)


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    return recordings(tmp_path_factory.mktemp("corpus"))


def fairseq_weights(model):
    """The weights under fairseq's names, with some that only pretraining needs."""
    is_layered = model.config.feat_extract_norm == "layer" if "feat_extract_norm" in model.config.to_dict() else True
    norm = (r"(conv_layers\.\d+)\.layer_norm\.", r"\1.2.1." if is_layered else r"\1.2.")
    found = {"quantizer.vars": torch.ones(2), "final_proj.weight": torch.ones(2, 2)}
    if model.config.model_type == "data2vec-audio":
        found["_ema"] = {"layers.0.fc1.weight": torch.ones(2, 2)}
    for name, tensor in model.state_dict().items():
        for pattern, theirs in (*TO_FAIRSEQ, norm):
            name = re.sub(pattern, theirs, name)
        found[name] = tensor
    return found


def fairseq_config(model):
    config = model.config
    convs = [f"({width},{kernel},{stride})" for width, kernel, stride in zip(
        config.conv_dim, config.conv_kernel, config.conv_stride, strict=True
    )]  # fmt: skip
    written = config.to_dict()
    is_data2vec = config.model_type == "data2vec-audio"
    return {
        "encoder_embed_dim": config.hidden_size,
        "encoder_layers": config.num_hidden_layers,
        "encoder_attention_heads": config.num_attention_heads,
        "encoder_ffn_embed_dim": config.intermediate_size,
        "activation_fn": "gelu",
        "layer_norm_first": bool(written.get("do_stable_layer_norm")),
        "extractor_mode": "layer_norm" if is_data2vec or written["feat_extract_norm"] == "layer" else "default",
        "conv_feature_layers": "[" + ", ".join(convs[:2]) + "] + [" + convs[2] + "] * 3 + [" + convs[5] + "] * 2",
        "conv_bias": config.conv_bias,
        "conv_pos": 15 if is_data2vec else config.num_conv_pos_embeddings,
        **({"pos_conv_depth": 3} if is_data2vec else {}),
        "conv_pos_groups": config.num_conv_pos_embedding_groups,
        "num_buckets": written.get("num_buckets"),
        "max_distance": written.get("max_bucket_distance"),
        **({"untie_final_proj": True} if config.model_type in ("hubert", "unispeech-sat") else {}),
    }


@pytest.mark.parametrize(
    "name", ["wav2vec2", "wav2vec2-large", "hubert", "wavlm", "wavlm-large", "data2vec", "unispeech-sat"]
)
@pytest.mark.parametrize("layout", ["fairseq", "s3prl"])
def test_a_file_has_the_layers_of_the_transformers_folder(name, layout, audio, tmp_path):
    model, upstream = make_encoder(name), ENCODERS[name][0]
    weights, config = fairseq_weights(model), fairseq_config(model)
    model.save_pretrained(tmp_path / "folder")
    (tmp_path / "folder/preprocessor_config.json").write_text('{"do_normalize": false}')
    if layout == "fairseq":
        held = {"args": None, "cfg": {"model": config, "task": {"normalize": False}}, "model": weights}
    else:
        held = {"task_cfg": {"normalize": False}, "model_cfg": config, "model_weight": weights}
    torch.save(held, tmp_path / "model.pt")
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    expected = open_upstream(upstream, tmp_path / "folder", tmp_path / "one")
    found = open_upstream(upstream, tmp_path / "model.pt", tmp_path / "other")
    for row in audio:
        assert farthest(layers_of(expected, [row])[0], layers_of(found, [row])[0]) == 0


@pytest.mark.parametrize("layout", ["cfg", "args"])
def test_a_fine_tuned_recognizer_has_the_encoder_that_it_began_with(layout, audio, tmp_path):
    model = make_encoder("hubert")
    before = fairseq_config(model)
    weights = {f"w2v_encoder.w2v_model.{name}": tensor for name, tensor in fairseq_weights(model).items()}
    weights["w2v_encoder.proj.weight"] = torch.ones(5, 2)
    own = {"_name": "hubert_ctc", "encoder_embed_dim": 768, "apply_mask": True}  # not the encoder's width
    if layout == "cfg":
        model_config = {**own, "w2v_args": {"model": before, "task": {"normalize": False}}}
        held = {"args": None, "cfg": {"model": model_config, "task": {"normalize": True}}, "model": weights}
    else:
        arguments = argparse.Namespace(**own, w2v_args=argparse.Namespace(**before), normalize=True)
        held = {"args": arguments, "model": weights}
    torch.save(held, tmp_path / "tuned.pt")
    plain = {"cfg": {"model": before, "task": {"normalize": True}}, "model": fairseq_weights(model)}
    torch.save(plain, tmp_path / "model.pt")
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    expected = open_upstream("hubert", tmp_path / "model.pt", tmp_path / "one")
    found = open_upstream("hubert", tmp_path / "tuned.pt", tmp_path / "other")
    assert found.normalizes
    assert farthest(layers_of(expected, [audio[1]])[0], layers_of(found, [audio[1]])[0]) == 0


def test_s3prls_distilhubert_has_the_layers_of_the_transformers_folder(audio, tmp_path):
    model = make_encoder("distilhubert")
    model.save_pretrained(tmp_path / "folder")
    (tmp_path / "folder/preprocessor_config.json").write_text('{"do_normalize": false}')
    own = fairseq_config(model)
    config = {**own, "extractor_conv_feature_layers": own.pop("conv_feature_layers"), "task_emb_type": "expand-last"}
    weights = {**fairseq_weights(model), "output_layer.0.weight": torch.ones(2, 2)}
    torch.save({"Config": {"distiller": config}, "Distiller": weights}, tmp_path / "states.ckpt")
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    expected = open_upstream("distilhubert", tmp_path / "folder", tmp_path / "one")
    found = open_upstream("distilhubert", tmp_path / "states.ckpt", tmp_path / "other")
    assert farthest(layers_of(expected, [audio[1]])[0], layers_of(found, [audio[1]])[0]) == 0
    held = {"Config": {"distiller": {**config, "task_emb_type": "add"}}, "Distiller": weights}
    torch.save(held, tmp_path / "add.ckpt")
    with pytest.raises(ModelError, match="an embedding for each of its tasks"):
        catalog.find(UPSTREAMS, "distilhubert").read(tmp_path / "add.ckpt", tmp_path)


def test_recordings_are_normalized_where_the_file_says_so(audio, tmp_path):
    model = make_encoder("wav2vec2")
    held = {"cfg": {"model": fairseq_config(model), "task": {"normalize": True}}, "model": fairseq_weights(model)}
    torch.save(held, tmp_path / "model.pt")
    upstream = open_upstream("wav2vec2", tmp_path / "model.pt", tmp_path)
    assert upstream.normalizes
    assert farthest(layers_of(upstream, [audio[1]])[0], layers_of(upstream, [3 * audio[1]])[0]) < 0.05


class Dictionary:
    """Stands for fairseq's class of this name: unpickling it here would be seen."""

    def __setstate__(self, state):
        raise RuntimeError("executed")


def test_classes_of_fairseq_are_read_as_data_and_others_refused(tmp_path, monkeypatch):
    module = types.ModuleType("fairseq")
    module.Dictionary = Dictionary
    monkeypatch.setitem(sys.modules, "fairseq", module)
    monkeypatch.setattr(Dictionary, "__module__", "fairseq")
    model, dictionary = make_encoder("hubert"), Dictionary()
    dictionary.symbols = ["a", "b"]
    arguments = argparse.Namespace(**fairseq_config(model), normalize=True)
    held = {"args": arguments, "model": fairseq_weights(model), "task_state": {"dictionaries": [dictionary]}}
    for name, is_zip in (("old.pt", False), ("model.pt", True)):  # as torch saved before 1.6, and since
        torch.save(held, tmp_path / name, _use_new_zipfile_serialization=is_zip)
        assert open_upstream("hubert", tmp_path / name, tmp_path).normalizes
    torch.save({**held, "extra": print}, tmp_path / "evil.pt")
    with pytest.raises(ModelError, match=r"print\), which is not run"):
        catalog.find(UPSTREAMS, "hubert").read(tmp_path / "evil.pt", tmp_path)


@pytest.mark.parametrize("change", [{"conv_feature_layers": "print(1)"}, {"encoder_layers": -1}, {"encoder_layers": 9}])
def test_a_file_that_contradicts_itself_is_refused(change, tmp_path):
    model = make_encoder("wav2vec2")
    held = {"cfg": {"model": {**fairseq_config(model), **change}}, "model": fairseq_weights(model)}
    torch.save(held, tmp_path / "model.pt")
    with pytest.raises(ModelError, match="model.pt"):
        catalog.find(UPSTREAMS, "wav2vec2").read(tmp_path / "model.pt", tmp_path)


def test_a_file_of_another_layout_is_refused_with_what_is_expected(tmp_path):
    torch.save({"weights": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(ModelError, match="not a checkpoint of fairseq or S3PRL"):
        catalog.find(UPSTREAMS, "wavlm").read(tmp_path / "model.pt", tmp_path)
    with pytest.raises(ModelError, match="is not a TERA or Mockingjay"):
        catalog.find(UPSTREAMS, "tera").read(tmp_path / "model.pt", tmp_path)


@pytest.mark.parametrize("name", ["tera", "mockingjay"])
def test_s3prls_own_encoders_have_berts_layers(name, audio, tmp_path):
    bert = save_s3prl(name, tmp_path / "states.ckpt")
    upstream = open_upstream(name, tmp_path / "states.ckpt", tmp_path)
    assert (upstream.stride, upstream.widths) == (160, (32,) * 3)
    alone = [layers_of(upstream, [row])[0] for row in audio]
    for row, together in zip(alone, layers_of(upstream, audio), strict=True):
        assert farthest(row, together) < 1e-5
    with torch.inference_mode():
        mask = torch.zeros(1, 1, 1, len(alone[1][0]))
        expected = [alone[1][0][None]]
        for layer in bert.encoder.layer:
            found = layer(expected[-1], mask)
            expected.append(found[0] if isinstance(found, tuple) else found)
    assert farthest(alone[1], [each[0] for each in expected]) < 1e-5
