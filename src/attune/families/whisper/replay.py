"""The decoder's step as a CUDA graph: a token for each row costs a few hundred launches, and a replay costs one.

A graph is bound to the memory it was recorded with, so there is one for each cache. The first step runs as it is
written, the second is recorded; a search of a few tokens pays for no more than that.
"""

# B utterances, R rows, S cached tokens, V vocabulary
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attune.families.whisper.layers import Decoder, KeysValues, Past
from attune.kernels.cuda_graph import capture_graph


@dataclass(frozen=True, slots=True)
class Scene:
    """What a step looks at: the encoder states (B, …), and a cache (R, …) of the decoder."""

    encoded: Sequence[KeysValues]
    mask: Tensor | None
    cache: Sequence[KeysValues]


class ReplayedStep:
    """One token for each row of a scene, at any place."""

    def __init__(self, decoder: Decoder, scene: Scene) -> None:
        keys = scene.cache[0].keys
        self.decoder = decoder
        self.scene = scene
        self.tokens = torch.zeros(len(keys), 1, dtype=torch.long, device=keys.device)
        self.place = torch.zeros(1, dtype=torch.long, device=keys.device)
        self._every_place = torch.arange(keys.shape[2], device=keys.device)
        self._has_run = False
        self._recorded: tuple[torch.cuda.CUDAGraph, Tensor] | None = None

    def __call__(self, tokens: Tensor, place: int) -> Tensor:
        """The log-probabilities (R, V) of what follows these tokens (R, 1); the next call writes over them."""
        self.tokens.copy_(tokens)
        self.place.fill_(place)
        if not self._has_run:
            self._has_run = True
            return self._run()
        graph, log_probs = self._recorded = self._recorded or capture_graph(self._run)
        graph.replay()
        return log_probs

    def _run(self) -> Tensor:
        is_written = (self._every_place <= self.place)[None, None, None]
        past = [Past(cached, self.place, is_written) for cached in self.scene.cache]
        logits = self.decoder.advance(self.tokens, self.scene.encoded, self.scene.mask, past)
        return logits.float().log_softmax(-1)
