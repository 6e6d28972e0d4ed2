"""NeMo's names for weights, and the few that are others here: LSTM layers are numbered, and the output is named."""

import re
from collections.abc import Mapping

from torch import Tensor

from attune.families.transducer.shape import TransducerShape

_THEIR_LSTM = re.compile(r"^(decoder\.prediction\.dec_rnn\.lstm)\.((?:weight|bias)_[ih]h)_l(\d+)$")
_OWN_LSTM = re.compile(r"^(decoder\.prediction\.dec_rnn\.lstm)\.(\d+)\.((?:weight|bias)_[ih]h)_l0$")
_THEIR_OUTPUT = re.compile(r"^joint\.joint_net\.\d+\.")
_OWN_OUTPUT = re.compile(r"^joint\.output\.")


def from_nemo(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the model's own names."""
    return {
        _THEIR_OUTPUT.sub("joint.output.", _THEIR_LSTM.sub(r"\1.\3.\2_l0", name)): tensor
        for name, tensor in tensors.items()
    }


def to_nemo(tensors: Mapping[str, Tensor], shape: TransducerShape) -> dict[str, Tensor]:
    """Weights under NeMo's names."""
    place = 2 if shape.joint.dropout else 1  # NeMo numbers the layers, of which the dropout may be one
    return {
        _OWN_OUTPUT.sub(f"joint.joint_net.{place}.", _OWN_LSTM.sub(r"\1.\3_l\2", name)): tensor
        for name, tensor in tensors.items()
    }
