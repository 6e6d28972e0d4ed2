"""Architectures by name: NeMo's own configurations and shallow ones, written as NeMo would.

A model that begins from nothing is described the same way as one that was read, so it can be exported the same way.
"""

from dataclasses import dataclass

from attune.families.transducer.settings import TransducerConfig
from attune.plain_yaml import Plain

MODULES = "nemo.collections.asr.modules"
KERNEL = 5
LEFT_CONTEXT = 70  # frames that a streaming encoder sees before its chunk


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Widths and depths."""

    width: int
    layers: int
    heads: int
    joined: int  # width of the prediction net and of the joint
    time_masks: int = 10
    repeat: int = 5  # convolutions in each of a ContextNet's blocks
    halves: tuple[int, ...] = (3, 7, 14)  # its blocks that make one frame of two


SIZES = {
    "contextnet": {
        "large": _Sizes(1024, 23, 0, 640),
        "medium": _Sizes(512, 23, 0, 640, 5),
        "small": _Sizes(256, 23, 0, 640, 2),
        "shallow": _Sizes(672, 8, 0, 640, 2, repeat=2, halves=(1, 2, 3)),
        "tiny": _Sizes(144, 8, 0, 128, 2, repeat=2, halves=(1, 2)),
        "dummy": _Sizes(112, 2, 0, 72, 2),
    },
    "conformer": {
        "large": _Sizes(512, 17, 8, 640),
        "medium": _Sizes(256, 16, 4, 640),
        "small": _Sizes(176, 16, 4, 320),
        "shallow": _Sizes(288, 6, 4, 640),
        "tiny": _Sizes(96, 4, 4, 128),
        "dummy": _Sizes(48, 2, 4, 64),
    },
}
SIZES["fastconformer"] = SIZES["conformer"]


def preset(config: TransducerConfig) -> dict[str, Plain]:
    """The configuration of a new model, but for its tokens."""
    encoder, size = str(config.encoder), str(config.size)
    sizes = SIZES[encoder][size]
    is_contextnet = encoder == "contextnet"
    outer: dict[str, Plain] = _contextnet(sizes) if is_contextnet else _conformer(sizes, encoder == "fastconformer")
    if config.look_aheads:
        outer |= _streaming(config.look_aheads)
    dropout = 0.1 if is_contextnet else 0.2
    width = sizes.joined if is_contextnet else sizes.width
    return {
        "sample_rate": 16000,
        # NeMo takes the widths of the joint from here.
        "model_defaults": {"enc_hidden": width, "pred_hidden": sizes.joined, "joint_hidden": sizes.joined},
        "preprocessor": _front_end(16 if is_contextnet else 0, "NA" if config.look_aheads else "per_feature"),
        "spec_augment": _spec_augment(sizes.time_masks),
        "encoder": outer,
        "decoder": _decoder(sizes, config.prediction == "stateless", dropout),
        "joint": _joint(sizes, width, config.durations, dropout),
        "decoding": _decoding(config.durations),
        "loss": _loss(config.durations, 0.001 if is_contextnet else 0.0),
        "target": "nemo.collections.asr.models.rnnt_bpe_models.EncDecRNNTBPEModel",
        "nemo_version": "2.0.0",
    }


def _streaming(look_aheads: tuple[int, ...]) -> dict[str, Plain]:
    """What NeMo's streaming FastConformers have otherwise."""
    return {
        "att_context_size": [[LEFT_CONTEXT, look_ahead] for look_ahead in look_aheads],
        "att_context_style": "chunked_limited",
        "causal_downsampling": True,
        "conv_context_size": "causal",
        "conv_norm_type": "layer_norm",
    }


def _front_end(pad_to: int, normalize: str) -> dict[str, Plain]:
    return {
        "_target_": f"{MODULES}.AudioToMelSpectrogramPreprocessor",
        "sample_rate": 16000,
        "normalize": normalize,
        "window_size": 0.025,
        "window_stride": 0.01,
        "window": "hann",
        "features": 80,
        "n_fft": 512,
        "frame_splicing": 1,
        "dither": 1.0e-05,
        "pad_to": pad_to,
    }


def _spec_augment(time_masks: int) -> dict[str, Plain]:
    kind = f"{MODULES}.SpectrogramAugmentation"
    return {"_target_": kind, "freq_masks": 2, "time_masks": time_masks, "freq_width": 27, "time_width": 0.05}


def _contextnet(sizes: _Sizes) -> dict[str, Plain]:
    return {
        "_target_": f"{MODULES}.ConvASREncoder",
        "feat_in": 80,
        "activation": "swish",
        "conv_mask": True,
        "init_mode": "tds_uniform",
        "jasper": _blocks(sizes),
    }


def _blocks(sizes: _Sizes) -> list[Plain]:
    """The first and the last block are one convolution each; a dummy's two blocks do all of the striding."""
    if sizes.layers == 2:
        return [_block(sizes.width, repeat=2, stride=4), _block(sizes.joined, repeat=1, stride=2)]
    between: list[Plain] = [
        _block(sizes.width, repeat=sizes.repeat, stride=2 if index in sizes.halves else 1)
        for index in range(1, sizes.layers - 1)
    ]
    return [_block(sizes.width, repeat=1, stride=1), *between, _block(sizes.joined, repeat=1, stride=1)]


def _block(filters: int, repeat: int, stride: int) -> dict[str, Plain]:
    block: dict[str, Plain] = {
        "filters": filters,
        "repeat": repeat,
        "kernel": [KERNEL],
        "stride": [stride],
        "dilation": [1],
        "dropout": 0.1 if repeat > 1 else 0.0,
        "residual": repeat > 1,
        "separable": True,
        "se": True,
        "se_context_size": -1,
    }
    return {**block, "stride_last": True, "residual_mode": "stride_add"} if stride > 1 else block


def _conformer(sizes: _Sizes, is_fast: bool) -> dict[str, Plain]:
    return {
        "_target_": f"{MODULES}.ConformerEncoder",
        "feat_in": 80,
        "feat_out": -1,
        "n_layers": sizes.layers,
        "d_model": sizes.width,
        "subsampling": "dw_striding" if is_fast else "striding",
        "subsampling_factor": 8 if is_fast else 4,
        "subsampling_conv_channels": min(256, sizes.width) if is_fast else -1,
        "ff_expansion_factor": 4,
        "self_attention_model": "rel_pos",
        "n_heads": sizes.heads,
        "att_context_size": [-1, -1],
        "xscaling": True,
        "untie_biases": True,
        "pos_emb_max_len": 5000,
        "conv_kernel_size": 9 if is_fast else 31,
        "conv_norm_type": "batch_norm",
        "dropout": 0.1,
        "dropout_pre_encoder": 0.1,
        "dropout_emb": 0.0,
        "dropout_att": 0.1,
    }


def _decoder(sizes: _Sizes, is_stateless: bool, dropout: float) -> dict[str, Plain]:
    if is_stateless:
        net: Plain = {"pred_hidden": sizes.joined, "dropout": dropout}
        kind = f"{MODULES}.StatelessTransducerDecoder"
        return {"_target_": kind, "context_size": 2, "normalization_mode": "layer", "prednet": net}
    net = {"pred_hidden": sizes.joined, "pred_rnn_layers": 1, "t_max": None, "dropout": dropout}
    kind = f"{MODULES}.RNNTDecoder"
    return {"_target_": kind, "normalization_mode": None, "blank_as_pad": True, "prednet": net}


def _joint(sizes: _Sizes, width: int, durations: tuple[int, ...], dropout: float) -> dict[str, Plain]:
    net: dict[str, Plain] = {
        "joint_hidden": sizes.joined,
        "activation": "relu",
        "dropout": dropout,
        "encoder_hidden": width,
        "pred_hidden": sizes.joined,
    }
    joint: dict[str, Plain] = {
        "_target_": f"{MODULES}.RNNTJoint",
        "log_softmax": None,
        "preserve_memory": False,
        "fuse_loss_wer": True,
        "fused_batch_size": 4,
        "jointnet": net,
    }
    return {**joint, "num_extra_outputs": len(durations)} if durations else joint


def _decoding(durations: tuple[int, ...]) -> dict[str, Plain]:
    decoding: dict[str, Plain] = {"strategy": "greedy_batch", "greedy": {"max_symbols": 10}, "beam": {"beam_size": 4}}
    return {**decoding, "model_type": "tdt", "durations": [*durations]} if durations else decoding


def _loss(durations: tuple[int, ...], fastemit: float) -> dict[str, Plain]:
    if not durations:
        return {"loss_name": "default", "warprnnt_numba_kwargs": {"fastemit_lambda": fastemit, "clamp": -1.0}}
    settings: dict[str, Plain] = {"fastemit_lambda": fastemit, "clamp": -1.0, "durations": [*durations]}
    return {"loss_name": "tdt", "tdt_kwargs": {**settings, "sigma": 0.02, "omega": 0.0}}
