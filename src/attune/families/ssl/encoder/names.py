"""What encoders' weights are called elsewhere: in transformers, by the kind of model, and in fairseq."""

import re
from collections.abc import Mapping

from torch import Tensor

PREFIXES = ("wav2vec2", "hubert", "wavlm", "data2vec_audio", "unispeech_sat", "wav2vec2_bert", "wav2vec2_conformer")
PARTS = ("feature_extractor", "feature_projection", "encoder", "masked_spec_embed")  # the rest is for pretraining

# Patterns of transformers' names, and what stands for them here.
_TRANSFORMERS = (
    (r"\.parametrizations\.weight\.original0$", ".weight_g"),
    (r"\.parametrizations\.weight\.original1$", ".weight_v"),
    (r"^encoder\.layers\.0\.attention\.rel_attn_embed\.", "encoder.places.rel_attn_embed."),
    (r"\.linear_q\.", ".q_proj."),
    (r"\.linear_k\.", ".k_proj."),
    (r"\.linear_v\.", ".v_proj."),
    (r"\.linear_out\.", ".out_proj."),
)
_FAIRSEQ = (
    (r"^w2v_encoder\.", ""),
    (r"^w2v_model\.", ""),
    (r"^mask_emb$", "masked_spec_embed"),
    (r"^post_extract_proj\.", "feature_projection.projection."),
    (r"^layer_norm\.", "feature_projection.layer_norm."),
    (r"^(feature_extractor\.conv_layers\.\d+)\.0\.", r"\1.conv."),
    (r"^(feature_extractor\.conv_layers\.\d+)\.2\.(1\.)?", r"\1.layer_norm."),
    (r"^encoder\.pos_conv\.0\.(weight_g|weight_v|weight|bias)$", r"encoder.pos_conv_embed.conv.\1"),
    (r"^encoder\.pos_conv\.(\d+)\.0\.", r"encoder.pos_conv_embed.layers.\1.conv."),
    (r"^encoder\.layers\.0\.self_attn\.relative_attention_bias\.", "encoder.places.rel_attn_embed."),
    (r"\.self_attn\.grep_linear\.", ".attention.gru_rel_pos_linear."),
    (r"\.self_attn\.grep_a$", ".attention.gru_rel_pos_const"),
    (r"\.self_attn\.", ".attention."),
    (r"\.self_attn_layer_norm\.", ".layer_norm."),
    (r"\.fc1\.", ".feed_forward.intermediate_dense."),
    (r"\.fc2\.", ".feed_forward.output_dense."),
)


def from_transformers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under attune's names, from transformers'; heads and what pretraining alone needs are left out."""
    stripped = {re.sub(rf"^({'|'.join(PREFIXES)})\.", "", name): tensor for name, tensor in tensors.items()}
    return _renamed(stripped, _TRANSFORMERS)


def from_fairseq(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under attune's names, from fairseq's."""
    return _renamed(tensors, _FAIRSEQ)


def _renamed(tensors: Mapping[str, Tensor], patterns: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    found = {}
    for name, tensor in tensors.items():
        for pattern, name_here in patterns:
            name = re.sub(pattern, name_here, name)
        if name.partition(".")[0] in PARTS:
            found[name] = tensor
    return found
