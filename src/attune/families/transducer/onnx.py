"""A transducer as three ONNX graphs: the encoder, the prediction network and the joint.

The prediction network starts from the blank, whose embedding is zero, and from the states in the description.
"""

# T samples, F frames, R rows, J joint width, V tokens with the blank, D durations
import torch
from torch import Tensor, nn

from attune.families._onnx import OnnxGraph, batch_of_one, example_audio
from attune.families.transducer.model import TransducerModel
from attune.types import States


class TransducerEncoderGraph(nn.Module):
    """Samples to frames in the joint's width."""

    def __init__(self, model: TransducerModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, audio: Tensor) -> Tensor:
        """The frames (1, F, J) of samples (1, T)."""
        frames: Tensor = self.model.joint.enc(self.model.encode(batch_of_one(audio))[0])
        return frames


class PredictorGraph(nn.Module):
    """The labels so far, in the joint's width."""

    def __init__(self, model: TransducerModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, label: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """What follows the next label (R,): (R, J), and the new states."""
        predicted, new = self.model.decoder.prediction.advance(label, states)
        return self.model.joint.pred(predicted), *new


class JointGraph(nn.Module):
    """A frame and the labels so far, to tokens and durations."""

    def __init__(self, model: TransducerModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, frame: Tensor, predicted: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities of the tokens (R, V) and, where the model has durations, of those (R, D)."""
        lattice = self.model.lattice
        logits = self.model.joint.logits(frame, predicted)
        tokens, durations = torch.split(logits, [lattice.blank + 1, len(lattice.durations)], dim=1)
        return (tokens.log_softmax(1), durations.log_softmax(1)) if lattice.durations else (tokens.log_softmax(1),)


def start_states(model: TransducerModel, rows: int = 1) -> States:
    """The prediction network's states before the first label: zeros, or blanks where they are labels."""
    states = model.decoder.prediction.start(rows)[1]
    return tuple(each if each.dtype == torch.long else torch.zeros_like(each) for each in states)


def transducer_graphs(model: TransducerModel) -> list[OnnxGraph]:
    """The three graphs."""
    states = {f"state_{index}": each for index, each in enumerate(start_states(model, rows=2))}
    label = torch.full((2,), model.lattice.blank)
    frame, predicted = torch.zeros(2, 2, model.joint.enc.out_features)
    outputs = ("log_probs", "duration_log_probs") if model.lattice.durations else ("log_probs",)
    return [
        OnnxGraph("encoder", TransducerEncoderGraph(model), {"audio": example_audio()}, ("frames",), {"audio": 1}),
        OnnxGraph(
            "predictor",
            PredictorGraph(model),
            {"label": label, **states},
            ("predicted", *(f"new_{name}" for name in states)),
            dict.fromkeys(("label", *states), 0),
            plain=1,
        ),
        OnnxGraph(
            "joint", JointGraph(model), {"frame": frame, "predicted": predicted}, outputs, {"frame": 0, "predicted": 0}
        ),
    ]
