"""Checkpoints of tiny self-supervised encoders with random weights, saved by transformers."""

import argparse

import torch
import transformers

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48}
CONVS = {"conv_dim": [16] * 7, "num_feat_extract_layers": 7}
POSITIONS = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
TINY = {**SIZES, **CONVS, **POSITIONS}
LARGE = {**TINY, "feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}  # as large models are
BUCKETS = {"num_buckets": 20, "max_bucket_distance": 40}

# By name: the upstream, and how transformers makes the model.
ENCODERS = {
    "wav2vec2": ("wav2vec2", "Wav2Vec2", TINY),
    "wav2vec2-large": ("wav2vec2", "Wav2Vec2", LARGE),
    "hubert": ("hubert", "Hubert", TINY),
    "hubert-large": ("hubert", "Hubert", LARGE),
    "hubert-batch-norm": ("hubert", "Hubert", {**TINY, "conv_pos_batch_norm": True}),
    "distilhubert": ("distilhubert", "Hubert", {**TINY, "num_hidden_layers": 2, "feat_proj_layer_norm": False}),
    "wavlm": ("wavlm", "WavLM", {**TINY, **BUCKETS}),
    "wavlm-large": ("wavlm", "WavLM", {**LARGE, **BUCKETS}),
    "data2vec": ("data2vec", "Data2VecAudio", {**TINY, "num_conv_pos_embeddings": 3, "conv_pos_kernel_size": 5}),
    "unispeech-sat": ("unispeech_sat", "UniSpeechSat", TINY),
    "conformer": ("wav2vec2_conformer", "Wav2Vec2Conformer", {**TINY, "conv_depthwise_kernel_size": 5}),
    "conformer-rotary": (
        "wav2vec2_conformer",
        "Wav2Vec2Conformer",
        {**TINY, "conv_depthwise_kernel_size": 5, "position_embeddings_type": "rotary"},
    ),
    "bert": (
        "wav2vec2_bert",
        "Wav2Vec2Bert",
        {
            **SIZES,
            "conv_depthwise_kernel_size": 5,
            "left_max_position_embeddings": 8,
            "right_max_position_embeddings": 4,
        },
    ),
}


def make_encoder(name):
    """A model of transformers', with weights that leave no part of it without effect."""
    _, kind, sizes = ENCODERS[name]
    torch.manual_seed(1)
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**sizes)).eval()
    for key, tensor in model.state_dict().items():
        if key.endswith("running_var"):
            tensor.uniform_(0.5, 2)
        elif key.endswith(("bias", "running_mean", "pos_bias_u", "pos_bias_v")):
            tensor.normal_(std=0.3)
        elif tensor.ndim == 1 and tensor.is_floating_point() and "inv_freq" not in key:
            tensor.add_(0.2 * torch.randn_like(tensor))
    return model


def save_s3prl(name, path):
    """A TERA or Mockingjay as S3PRL's pretraining writes it; returns transformers' BERT, which its layers are."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    torch.manual_seed(2)
    bert = transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=8), add_pooling_layer=False).eval()
    projection, norm = torch.nn.Linear(80 if name == "tera" else 240, 32), torch.nn.LayerNorm(32, eps=1e-12)
    held = {
        **{key: each for key, each in bert.state_dict().items() if key.startswith("encoder.")},
        **{f"input_representations.spec_transform.{key}": each for key, each in projection.state_dict().items()},
        **{f"input_representations.LayerNorm.{key}": each for key, each in norm.state_dict().items()},
    }
    mel = {"n_mels": 80, "input": {"feat_type": "mel", "channel": 0, "log": True, "delta": 0, "cmvn": True}}
    kaldi = {"kaldi": {"feat_type": "fbank"}, "delta": {"order": 2}}
    described = {"transformer": {**sizes, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "pre_layer_norm": False}}
    config = {**described, "audio": mel if name == "tera" else kaldi}
    torch.save({"Transformer": held, "Config": config, "Args": argparse.Namespace(seed=1)}, path)
    return bert
