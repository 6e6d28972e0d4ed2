"""NeMo's names for weights, and the few that are others here."""

import re
from collections.abc import Mapping

from torch import Tensor

from attune.families.transducer.front_end import hann, mel_bank
from attune.families.transducer.shape import Shape

FRONT_END = "preprocessor.featurizer."
_LSTM = re.compile(r"^(decoder\.prediction\.dec_rnn\.lstm)\.((?:weight|bias)_[ih]h)_l(\d+)$")
_OWN_LSTM = re.compile(r"^(decoder\.prediction\.dec_rnn\.lstm)\.(\d+)\.((?:weight|bias)_[ih]h)_l0$")
_OUTPUT = re.compile(r"^joint\.joint_net\.\d+\.")


def from_nemo(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the model's own names; what the front-end computes for itself is left out."""
    return {_own(name): tensor for name, tensor in tensors.items() if not name.startswith(FRONT_END)}


def to_nemo(tensors: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Weights under NeMo's names, with what its front-end keeps among them."""
    window = {f"{FRONT_END}window": hann(shape.front_end.window)}
    bank = {f"{FRONT_END}fb": mel_bank(shape.front_end.bins, shape.front_end.transform)[None]}
    place = 2 if shape.joint.dropout else 1  # NeMo numbers the layers, of which the dropout may be one
    renamed = {
        re.sub(r"^joint\.output\.", f"joint.joint_net.{place}.", _OWN_LSTM.sub(r"\1.\3_l\2", name)): tensor
        for name, tensor in tensors.items()
    }
    return {**window, **bank, **renamed}


def _own(name: str) -> str:
    return _OUTPUT.sub("joint.output.", _LSTM.sub(r"\1.\3.\2_l0", name))
