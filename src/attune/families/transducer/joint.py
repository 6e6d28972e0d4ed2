"""The joint: both sides projected to one width, added, bent, and read as tokens and durations."""

# B batch, F frames, U labels, J joint width, R rows, V labels, D durations
import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from attune.families.transducer.shape import JointShape

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


class Joint(nn.Module):
    """The names of its weights are NeMo's; the output is called `joint_net.1` or, after a dropout, `joint_net.2`."""

    def __init__(self, encoder_width: int, prediction_width: int, outputs: int, shape: JointShape) -> None:
        super().__init__()
        self.shape = shape
        self.pred = nn.Linear(prediction_width, shape.width)
        self.enc = nn.Linear(encoder_width, shape.width)
        # The loss reads its weights instead of calling it: additions to them (LoRA) would not be seen.
        self.output = NonDynamicallyQuantizableLinear(shape.width, outputs)
        self.dropout = nn.Dropout(shape.dropout)

    def project(self, encoded: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Both sides in the joint's width, with dropout; see docs/decisions/0013 for why it is here."""
        return self.dropout(self.enc(encoded)), self.dropout(self.pred(predicted))

    def logits(self, encoded: Tensor, predicted: Tensor) -> Tensor:
        """What follows where projected sides (…, J) meet: tokens with the blank last, then durations."""
        read: Tensor = self.output(ACTIVATIONS[self.shape.activation](encoded + predicted))
        return read
