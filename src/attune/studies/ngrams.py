"""Estimate an n-gram language model of texts, in words or in the tokens of a model, and say how good it is."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attune import catalog
from attune.contracts import Codec
from attune.corpora import REMOVE, open_corpus, require_valid_rows
from attune.decoding._phrase_tree import SPECIAL
from attune.errors import ConfigError, ModelError
from attune.recipe import Recipe
from attune.site import Site
from attune.sources import locate
from attune.stages.eval_target import SPLITS, load_eval_target, open_eval_target
from attune.text.arpa import TextLikelihood, likelihood, write_arpa
from attune.text.kneser_ney import NGramModel, estimate
from attune.text.timestamps import strip_timestamps
from attune.types import Utterance, tokens_of
from attune.world import World

Split = Callable[[Utterance], list[str]]  # a text as words or tokens


@dataclass(frozen=True, slots=True)
class NGramRequest:
    """What to estimate: texts (manifests, text files), the order, what to prune, and the words or tokens."""

    texts: tuple[str, ...]
    order: int
    prune: tuple[int, ...] = ()
    tokenizer: str | None = None  # a run or a model, whose tokens to use; None: words
    normalizer: str = "none"  # of words
    on: tuple[str, ...] = ()  # texts, or splits of the tokenizer's recipe, to measure perplexity on


@dataclass(frozen=True, slots=True)
class EstimatedNGrams:
    """How large a model is, and how probable it finds other texts, by name."""

    model: NGramModel
    sentences: int
    tokens: int
    likelihoods: dict[str, TextLikelihood]
    words: dict[str, int]  # of those texts, ends included

    def as_json(self) -> dict[str, object]:
        """As plain data."""
        return {
            "sentences": self.sentences,
            "tokens": self.tokens,
            "ngrams": [len(each.keys) for each in self.model.orders],
            "discounts": [list(each) for each in self.model.discounts],
            "on": {
                name: {
                    "perplexity": each.perplexity,
                    "word_perplexity": word_perplexity(each, self.words[name]),
                    "tokens": each.words,
                    "unknown": each.unknown,
                }
                for name, each in self.likelihoods.items()
            },
        }


def word_perplexity(found: TextLikelihood, words: int) -> float:
    """The perplexity for each word, however many tokens it has."""
    return TextLikelihood(found.log_prob, words, found.unknown).perplexity


def estimate_ngrams(request: NGramRequest, to: Path, site: Site) -> EstimatedNGrams:
    """Write an ARPA file."""
    recipe, split = _splitter(request, site)
    counter = _Counter()
    with tempfile.TemporaryDirectory() as scratch:
        corpus = _texts("texts", request.texts, Path(scratch), site)
        model = estimate(counter.counted(map(split, corpus)), request.order, request.prune)
        likelihoods, words = {}, {}
        for name in request.on:
            sources = _sources(name, recipe)
            own = list(_texts(name, sources, Path(scratch), site))
            likelihoods[name] = likelihood(model, map(split, own))
            words[name] = sum(len((each.text or "").split()) + 1 for each in own)
    write_arpa(model, to)
    return EstimatedNGrams(model, counter.sentences, counter.tokens, likelihoods, words)


@dataclass(slots=True)
class _Counter:
    """Counts what passes."""

    sentences: int = 0
    tokens: int = 0

    def counted(self, sentences: Iterator[list[str]]) -> Iterator[list[str]]:
        for sentence in sentences:
            self.sentences += 1
            self.tokens += len(sentence)
            yield sentence


def _texts(name: str, sources: Sequence[str], scratch: Path, site: Site) -> Iterator[Utterance]:
    corpus = open_corpus(name, [locate(source, site.cache) for source in sources], scratch)
    require_valid_rows(corpus, "fail", REMOVE)  # a text less is another model, or another perplexity
    return (utterance for utterance in corpus if utterance.text is not None)


def _sources(name: str, recipe: Recipe | None) -> tuple[str, ...]:
    if name not in SPLITS or recipe is None:
        return (name,)
    found: tuple[str, ...] = getattr(recipe.data, name)
    if not found:
        raise ConfigError(f"--on {name}: the recipe of the tokenizer's run has no data.{name}. Name a file.")
    return found


def _splitter(request: NGramRequest, site: Site) -> tuple[Recipe | None, Split]:
    """How texts become words or tokens, and the recipe of the model whose tokens they are."""
    if request.tokenizer is None:
        normalize = catalog.find(catalog.NORMALIZERS, request.normalizer)
        return None, lambda each: normalize(strip_timestamps(each.text or "", each.language)).split()
    if request.normalizer != "none":
        raise ConfigError("--normalizer is for words; a model's own normalizer goes with its --tokenizer. Remove one.")
    target = open_eval_target(request.tokenizer, [], site)
    codec = load_eval_target(target.pretrained, site, World.alone()).task_model.codec
    if not codec.pieces:
        raise ModelError(f"{request.tokenizer} has no text tokens. Remove --tokenizer to count words.")
    return target.pretrained.recipe, lambda each: _pieces(codec, each)


def _pieces(codec: Codec, utterance: Utterance) -> list[str]:
    """The tokens of a text as they are written; prompts, times and ends are no text."""
    known = len(codec.pieces)
    written = [codec.pieces[token] for token in tokens_of(codec.target(utterance)) if token < known]
    return [piece for piece in written if not SPECIAL.fullmatch(piece)]
