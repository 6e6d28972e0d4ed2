"""The decoder as a search steps it: frames and states by row."""

# R rows, F frames, V vocabulary
import torch
from torch import Tensor

from attune.families.aed.decoder import AedDecoder, DecoderState
from attune.families.aed.vocabulary import END
from attune.types import LogitFilter


class AedScorer:
    """A TokenScorer. An utterance gets as many tokens as it has frames at most."""

    filters: tuple[LogitFilter, ...] = ()
    end = END

    def __init__(self, decoder: AedDecoder, frames: Tensor, lengths: Tensor) -> None:
        self.device = frames.device
        self.decoder = decoder
        self.prefixes = [[END]] * len(frames)
        self.limits = lengths.tolist()
        self.attended = decoder.attend(frames, lengths)
        self.state: DecoderState = decoder.start(self.attended)

    @property
    def attention(self) -> Tensor:
        """Where the decoder looked in the last step (R, F)."""
        return self.state.attention

    @torch.no_grad()
    def advance(self, tokens: Tensor) -> Tensor:
        """Give each row its next token (R, 1): the log-probabilities (R, V) of what follows."""
        for place in range(tokens.shape[1]):
            logits, self.state = self.decoder.step(tokens[:, place], self.attended, self.state)
        return logits.float().log_softmax(-1)

    def select(self, rows: Tensor) -> None:
        """Row i goes on from what row `rows[i]` is now."""
        self.attended, self.state = self.attended.select(rows), self.state.select(rows)
