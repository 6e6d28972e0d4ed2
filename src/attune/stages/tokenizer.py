"""Learn tokens from the texts of manifests, for recipes that are to share them."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attune import catalog
from attune.corpora import open_corpus
from attune.errors import DataError
from attune.files import completed
from attune.site import Site
from attune.sources import locate
from attune.text.timestamps import strip_timestamps
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer


@dataclass(frozen=True, slots=True)
class TokenizerRequest:
    """What tokens to learn."""

    kind: Literal["bpe", "unigram"]
    size: int
    normalizer: str = "none"


@dataclass(frozen=True, slots=True)
class LearnedTokenizer:
    """What came of it."""

    tokens: int
    texts: int
    per_word: float


def learn_tokens(sources: Sequence[str], file: Path, wish: TokenizerRequest, site: Site) -> LearnedTokenizer:
    """Write a SentencePiece model of the texts that the manifests have."""
    normalize = catalog.find(catalog.NORMALIZERS, wish.normalizer)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = open_corpus("texts", [locate(source, site.cache) for source in sources], Path(scratch))
        written = [(each.text, each.language) for each in corpus if each.text is not None]
        texts = [normalize(strip_timestamps(text, language)) for text, language in written]
    if not texts:
        raise DataError(f"There is no text in {', '.join(sources)} to learn tokens from.")
    pieces = SentencePieceTokenizer.learn(texts, wish.kind, wish.size)
    with completed(file) as partial:
        partial.write_bytes(pieces.model)
    words = sum(len(text.split()) for text in texts)
    return LearnedTokenizer(pieces.size, len(texts), sum(len(pieces.encode(text)) for text in texts) / max(1, words))
