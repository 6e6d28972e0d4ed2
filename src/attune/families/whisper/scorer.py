"""Whisper as a search steps it: encoder states are kept once for each utterance, decoder states in a cache by row."""

# B utterances, K rows of each, R = B × K rows, F frames, U tokens, S cached tokens, H heads, D width, V vocabulary
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.families.whisper.labels import UNKNOWN_LANGUAGE, DecoderPrompt
from attune.families.whisper.layers import Decoder, KeysValues, Past
from attune.families.whisper.replay import ReplayedStep, Scene
from attune.families.whisper.windows import Windows, attention_kernels
from attune.kernels.cuda_graph import is_sharded
from attune.text.filters import pair_timestamps, suppress, suppress_first
from attune.types import SAMPLE_RATE, Batch, LogitFilter

TOKENS_PER_SECOND = 50  # scripts that Whisper spells byte by byte come near it; no speech goes beyond
TOKENS_AT_LEAST = 16
FIRST_PLACES = 64  # of a cache, which grows by doubling: few utterances come near their limits
LATEST_START = 50  # timestamps, one second: speech begins by then


@dataclass(frozen=True, slots=True)
class DecodingRules:
    """The tokens that decoding must know, and those it may not emit."""

    prompt: DecoderPrompt  # unless an utterance has its own
    start: int
    end: int
    languages: tuple[int, ...]
    never: tuple[int, ...]
    not_first: tuple[int, ...]
    first_timestamp: int | None = None  # None: times are not asked for
    alignment_heads: tuple[tuple[int, int], ...] = ()  # layer and head that follow the speech; none: not known

    def filters(self, device: torch.device) -> list[LogitFilter]:
        """What a search must not let the model emit."""
        rules = [suppress(torch.tensor(self.never, dtype=torch.long, device=device))]
        if self.first_timestamp is None:
            return [*rules, suppress_first(torch.tensor(self.not_first, dtype=torch.long, device=device))]
        return [*rules, pair_timestamps(self.first_timestamp, self.end, LATEST_START)]


class WhisperScorer:
    """A TokenScorer. The rows of an utterance are next to each other and look at it together."""

    def __init__(self, decoder: Decoder, rules: DecodingRules, batch: Batch, states: Tensor, windows: Windows) -> None:
        self.device = states.device
        self.window = windows.kind
        self.end = rules.end
        self.filters = rules.filters(states.device)
        self.decoder = decoder
        self.mask = windows.mask()
        self.encoded = decoder.project_encoded(states)
        self.prefixes = self._prefixes(batch, rules)
        self.limits = self._limits(batch)
        self.position = 0
        self.step: ReplayedStep | None = None
        self.cache = self._empty_cache(FIRST_PLACES)

    def advance(self, tokens: Tensor) -> Tensor:
        """Give each row its next tokens (R, n): the log-probabilities (R, V) of what follows them."""
        places = slice(self.position, self.position + tokens.shape[1])
        if places.stop > self.cache[0].keys.shape[2]:
            self._grow(places.stop)
        self.position = places.stop
        with attention_kernels(self.window == "full", self.device):
            if self.device.type == "cuda" and tokens.shape[1] == 1 and not is_sharded(self.decoder):
                self.step = self.step or ReplayedStep(self.decoder, Scene(self.encoded, self.mask, self.cache))
                return self.step(tokens, places.start)
            past = [Past(cached, places) for cached in self.cache]
            return self.decoder.advance(tokens, self.encoded, self.mask, past).float().log_softmax(-1)

    def select(self, rows: Tensor) -> None:
        """Row i goes on from what row `rows[i]` is now."""
        if len(rows) != len(self.cache[0].keys):
            self.step = None  # it knows the rows as they were
            self._keep_encoded(rows)
            self.cache = [KeysValues(each.keys[rows], each.values[rows]) for each in self.cache]
            return
        for each in self.cache:
            for used in (each.keys[:, :, : self.position], each.values[:, :, : self.position]):
                used.copy_(used[rows])

    def _grow(self, needed: int) -> None:
        """Make room for so many tokens and more."""
        self.step = None  # it knows the cache as it was
        size = self.cache[0].keys.shape[2]
        more = (0, 0, 0, max(needed, 2 * size) - size)
        self.cache = [KeysValues(F.pad(each.keys, more), F.pad(each.values, more)) for each in self.cache]

    def _keep_encoded(self, rows: Tensor) -> None:
        """Let go of utterances that have no row any more; the others may now have more or fewer."""
        copies = len(self.cache[0].keys) // len(self.encoded[0].keys)
        utterances = torch.unique_consecutive(rows // copies)
        if len(utterances) < len(self.encoded[0].keys):
            self.encoded = [KeysValues(each.keys[utterances], each.values[utterances]) for each in self.encoded]
            self.mask = None if self.mask is None else self.mask[utterances]

    def _empty_cache(self, size: int) -> list[KeysValues]:
        encoded = self.encoded[0].keys
        shape = (*encoded.shape[:2], size, encoded.shape[3])
        # Zeros: what is hidden still takes part in attention's product, with a weight of nothing.
        own = self.decoder.embed_positions.weight  # its type: that of the encoded states may be another
        return [KeysValues(own.new_zeros(shape), own.new_zeros(shape)) for _ in self.encoded]

    def _prefixes(self, batch: Batch, rules: DecodingRules) -> list[list[int]]:
        """What each utterance begins with; a language that was left open is detected."""
        rows = zip(batch.tokens.ids.tolist(), batch.tokens.lengths.tolist(), strict=True)
        prefixes = [row[:length] for row, length in rows]
        if any(UNKNOWN_LANGUAGE in row for row in prefixes):
            prefixes = [
                [language if token == UNKNOWN_LANGUAGE else token for token in row]
                for row, language in zip(prefixes, self._languages(rules, len(prefixes)), strict=True)
            ]
        return prefixes

    def _languages(self, rules: DecodingRules, utterances: int) -> list[int]:
        """The most probable language of each utterance, whatever the others are."""
        start = torch.full((utterances, 1), rules.start, device=self.device)
        logits = self.decoder.advance(
            start, self.encoded, self.mask, [Past(each, slice(1)) for each in self._empty_cache(1)]
        )
        languages = torch.tensor(rules.languages, device=self.device)
        detected: list[int] = languages[logits[:, languages].argmax(1)].tolist()
        return detected

    def _limits(self, batch: Batch) -> list[int]:
        """No more tokens than the audio can hold or the decoder has positions for."""
        positions = self.decoder.embed_positions.num_embeddings
        return [
            min(positions - len(prefix), TOKENS_AT_LEAST + length * TOKENS_PER_SECOND // SAMPLE_RATE)
            for prefix, length in zip(self.prefixes, batch.lengths.tolist(), strict=True)
        ]
