"""An upstream with its head as one ONNX graph: samples in, what the head scores out."""

# T samples
from torch import Tensor, nn

from attune.families._onnx import OnnxGraph, batch_of_one, example_audio
from attune.families.ssl.model import SslModel
from attune.scorers import ActivityScorer, CtcScorer, EmbeddingScorer, LabelScorer, ScorerKind

OUTPUTS: dict[ScorerKind, str] = {
    "ctc": "log_probs", "label": "log_probs", "embedding": "vectors", "activity": "log_odds",
}  # fmt: skip


class HeadGraph(nn.Module):
    """One utterance from samples to scores."""

    def __init__(self, model: SslModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, audio: Tensor) -> Tensor:
        """The head's scores of samples (1, T)."""
        batch = batch_of_one(audio)
        frames, lengths = self.model.head_frames(batch)
        scorer = self.model.head.scorer(frames.float(), lengths, batch)  # runtimes have few layers in float64
        if isinstance(scorer, CtcScorer | LabelScorer):
            return scorer.log_probs
        if isinstance(scorer, EmbeddingScorer):
            return scorer.vectors
        if isinstance(scorer, ActivityScorer):
            return scorer.log_odds
        raise TypeError(f"No ONNX graph for {type(scorer).__name__}.")


def ssl_graphs(model: SslModel) -> list[OnnxGraph]:
    """The one graph of a model whose head is of a kind in OUTPUTS."""
    output = OUTPUTS[model.head.scorer_kind]
    return [OnnxGraph("model", HeadGraph(model), {"audio": example_audio()}, (output,), {"audio": 1})]
