"""A decoder as a search steps it: frames by utterance, states by row, and the CTC output for joint decoding."""

# U utterances, R rows, as many of each, F frames, V vocabulary
import torch
from torch import Tensor

from attune.families.aed.decoder import GruDecoder
from attune.families.aed.transformer import TransformerDecoder
from attune.types import CtcScorer, LogitFilter

Decoder = GruDecoder | TransformerDecoder


class AedScorer:
    """A TokenScorer. An utterance gets as many tokens as it has frames at most."""

    filters: tuple[LogitFilter, ...] = ()

    def __init__(self, decoder: Decoder, frames: Tensor, ctc: CtcScorer, begin: int, end: int) -> None:
        self.device = frames.device
        self.decoder, self.ctc, self.end = decoder, ctc, end
        self.prefixes = [[begin]] * len(frames)
        self.limits = ctc.lengths.tolist()
        self.attended = decoder.attend(frames, ctc.lengths)
        self.state = decoder.start(self.attended)  # type: ignore[arg-type]  # its own
        self.utterances = torch.arange(len(frames), device=frames.device)  # (R,)

    @property
    def attention(self) -> Tensor:
        """Where the decoder looked in the last step (R, F)."""
        return self.state.attention

    @torch.no_grad()
    def advance(self, tokens: Tensor) -> Tensor:
        """Give each row its next token (R, 1): the log-probabilities (R, V) of what follows."""
        for place in range(tokens.shape[1]):
            logits, self.state = self.decoder.step(tokens[:, place], self.attended, self.state)  # type: ignore[arg-type]
        return logits.float().log_softmax(-1)

    def select(self, rows: Tensor) -> None:
        """Row i goes on from what row `rows[i]` is now."""
        if len(rows) != len(self.utterances):  # else each row stays with its utterance
            kept, self.utterances = torch.unique(self.utterances[rows], return_inverse=True)
            self.attended = self.attended.select(kept)
        self.state = self.state.select(rows)
