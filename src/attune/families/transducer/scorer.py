"""A transducer in mid-sentence, for a search."""

# B batch, F frames, R rows, P prediction width, J joint width, V tokens with the blank, D durations
import torch
from torch import Tensor

from attune.families.transducer.joint import Joint
from attune.families.transducer.prediction import LstmNet, StatelessNet
from attune.kernels.transducer import Lattice
from attune.types import States


class ModelScorer:
    """The encoder's frames, projected once, and the prediction net to go with them."""

    def __init__(
        self, prediction: LstmNet | StatelessNet, joint: Joint, encoded: Tensor, lengths: Tensor, lattice: Lattice
    ) -> None:
        self.prediction = prediction
        self.joint = joint
        self.frames = joint.enc(encoded)  # (B, F, J)
        self.lengths = lengths
        self.device = encoded.device
        self.blank = lattice.blank
        self.durations = lattice.durations

    def start(self, rows: int) -> tuple[Tensor, States]:
        """What the prediction net says (R, J) before any label, already projected, and its states."""
        predicted, states = self.prediction.start(rows)
        return self.joint.pred(predicted), states

    def predict(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """What it says (R, J) once each row has its next label (R,), and the new states."""
        predicted, states = self.prediction.advance(labels, states)
        return self.joint.pred(predicted), states

    def join(self, utterances: Tensor, frames: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the tokens (R, V) and of the durations (R, D), in float32."""
        logits = self.joint.logits(self.frames[utterances, frames], predicted).float()
        tokens, durations = torch.split(logits, [self.blank + 1, len(self.durations)], dim=1)
        return tokens.log_softmax(1), durations.log_softmax(1)
