"""Graphs in ONNX Runtime as the searches see a model: row by row, with attune's own rules around them."""

# B utterances, R rows, n tokens, V vocabulary, J joint width
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from attune.contracts import SpeechModel
from attune.families.ssl.model import SslModel
from attune.families.ssl.onnx import HeadGraph
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.onnx import TransducerEncoderGraph, start_states
from attune.families.whisper.model import WhisperModel
from attune.families.whisper.onnx import WhisperEncoderGraph
from attune.families.whisper.scorer import WhisperScorer
from attune.scorers import CtcScorer, LabelScorer
from attune.types import Batch, Scorer, States


class OnnxSession(Protocol):
    """An `onnxruntime.InferenceSession`."""

    def run(self, names: None, inputs: Mapping[str, object]) -> list[Any]:
        """All outputs."""


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """The graphs of a model, which stands by for what is not in them: prompts, limits and rules of decoding."""

    model: SpeechModel
    sessions: Mapping[str, OnnxSession]

    def scorer(self, batch: Batch) -> Scorer:
        """What a search can search."""
        first = [torch.from_numpy(self._first(audio)) for audio in _rows(batch)]
        if isinstance(self.model, WhisperModel):
            rules = self.model.scorer(batch)
            return OnnxTokens(self.sessions["decoder"], first, rules, [(row, None) for row in range(len(first))])
        if isinstance(self.model, TransducerModel):
            return OnnxTransducer(self.model, self.sessions, [each[0] for each in first])
        if cast(SslModel, self.model).head.scorer_kind == "ctc":
            lengths = torch.tensor([each.shape[1] for each in first])
            padded = torch.nn.utils.rnn.pad_sequence([each[0] for each in first], batch_first=True)
            return CtcScorer(padded, lengths)
        return LabelScorer(torch.cat(first))

    def largest_difference(self, batch: Batch) -> float:
        """By how much the first graph's output differs from what the model computes."""
        kinds = {WhisperModel: WhisperEncoderGraph, TransducerModel: TransducerEncoderGraph, SslModel: HeadGraph}
        own = cast(Any, kinds[type(self.model)])(self.model)
        pairs = ((own(audio).numpy(), self._first(audio)) for audio in _rows(batch))
        return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)

    def _first(self, audio: Tensor) -> Any:
        session = self.sessions["model"] if "model" in self.sessions else self.sessions["encoder"]
        return session.run(None, {"audio": audio.numpy()})[0]


def _rows(batch: Batch) -> list[Tensor]:
    """The utterances (1, T) without padding."""
    return [audio[None, :length] for audio, length in zip(batch.audio, batch.lengths.tolist(), strict=True)]


class OnnxTokens:
    """A TokenScorer over a decoder's graph, one row after the other."""

    def __init__(
        self, session: OnnxSession, encoded: list[Tensor], rules: WhisperScorer, rows: list[tuple[int, Tensor | None]]
    ) -> None:
        self.session = session
        self.encoded = encoded
        self.rows = rows  # the utterance and the cache of each
        self.device = rules.device
        self.end, self.prefixes, self.limits, self.filters = rules.end, rules.prefixes, rules.limits, rules.filters

    def advance(self, tokens: Tensor) -> Tensor:
        """Give each row its next tokens (R, n): the log-probabilities (R, V) of what follows them."""
        found = []
        for index, (utterance, cache) in enumerate(self.rows):
            logits, cache = self._steps(tokens[index].tolist(), self.encoded[utterance], cache)
            self.rows[index] = utterance, cache
            found.append(logits)
        return torch.cat(found).log_softmax(-1)

    def _steps(self, tokens: list[int], encoded: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor]:
        past = encoded[..., :0, :] if cache is None else cache
        logits = past
        for token in tokens:
            inputs = {"token": np.array([[token]]), "encoded": encoded.numpy(), "past": past.numpy()}
            logits, past = map(torch.from_numpy, self.session.run(None, inputs))
        return logits, past

    def select(self, rows: Tensor) -> None:
        """Row i goes on from what row `rows[i]` is now."""
        self.rows = [self.rows[row] for row in rows.tolist()]


class OnnxTransducer:
    """A TransducerScorer over the graphs of a prediction network and a joint."""

    def __init__(self, model: TransducerModel, sessions: Mapping[str, OnnxSession], frames: list[Tensor]) -> None:
        self.model = model
        self.sessions = sessions
        self.frames = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)  # (B, F, J)
        self.lengths = torch.tensor([len(each) for each in frames])
        self.device = self.frames.device
        self.blank, self.durations = model.lattice.blank, model.lattice.durations

    def start(self, rows: int) -> tuple[Tensor, States]:
        """What the prediction network says (R, J) before any label, and its states."""
        return self.predict(torch.full((rows,), self.blank), start_states(self.model, rows))

    def predict(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """What it says (R, J) once each row has its next label (R,), and the new states."""
        named = {f"state_{index}": each.numpy() for index, each in enumerate(states)}
        predicted, *new = map(
            torch.from_numpy, self.sessions["predictor"].run(None, {"label": labels.numpy(), **named})
        )
        return predicted, tuple(new)

    def join(self, utterances: Tensor, frames: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the tokens (R, V) and of the durations (R, D)."""
        inputs = {"frame": self.frames[utterances, frames].numpy(), "predicted": predicted.numpy()}
        tokens, *durations = map(torch.from_numpy, self.sessions["joint"].run(None, inputs))
        return tokens, durations[0] if durations else tokens[:, :0]
