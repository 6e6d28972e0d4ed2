"""A recipe's search settings as the decoder takes them, with the language model and the phrases that they name."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from attune.contracts import FusableModel, TaskModel
from attune.decoding._phrase_tree import TokenTexts
from attune.decoding.fusion import Fusion
from attune.decoding.ngram import BEGIN, END, UNKNOWN, read_arpa, words_of
from attune.decoding.phrases import PhraseBook
from attune.decoding.search import Search, require_usable
from attune.decoding.settings import LENGTH_NORMS, SearchConfig
from attune.decoding.word_ngram import WordNGram, read_word_arpa
from attune.errors import ConfigError, DataError, ModelError
from attune.files import split_lines
from attune.loading.pretrained import build_model, load_weights, open_pretrained
from attune.site import Site
from attune.sources import locate
from attune.types import LanguageModel
from attune.world import World


def search_of(config: SearchConfig, built: TaskModel, site: Site, world: World) -> Search:
    """The recipe's search settings as the decoder takes them, with the language model they name."""
    search = Search(
        config.search, config.beam, config.length_power, config.fallback, config.precision, ctc_weight=config.ctc_weight
    )
    norm = LENGTH_NORMS.get(built.scorer)
    if norm and config.search == "beam" and config.length_power is None:  # spelled out, for the records
        search = replace(search, length_power=norm.power, length_offset=norm.offset)
    if config.lm is not None:
        model = _read_lm(config.lm, built, site, world)
        if isinstance(model, WordNGram) and config.lm_temperature != 1:
            raise ConfigError("decode.lm_temperature does not work with a language model over words. Remove it.")
        fusion = Fusion(model, config.lm_weight, config.lm_temperature)
        search = replace(search, lm=config.lm, fusion=fusion)
    if built.codec.pieces:
        phrases = read_phrases(config.phrases, site)
        search = replace(search, phrases=PhraseBook(TokenTexts(built.codec.pieces), config.phrase_bonus, phrases))
    require_usable(search, built.scorer)
    return search


def read_phrases(sources: Sequence[str], site: Site) -> tuple[str, ...]:
    """The phrases themselves: of a text file, each line is one."""
    found: list[str] = []
    for source in sources:
        if not source.endswith(".txt"):
            found.append(source)
            continue
        try:
            lines = split_lines(locate(source, site.cache).read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise DataError(f"{source} is not a list of phrases in UTF-8: {error}") from error
        found += [line.strip() for line in lines if line.strip()]
    return tuple(dict.fromkeys(found))


def _read_lm(source: str, built: TaskModel, site: Site, world: World) -> LanguageModel:
    pieces = built.codec.pieces
    if not pieces:
        raise ModelError(f"decode.lm: this model has no text tokens for {source}. Remove decode.lm.")
    end = pieces.index(END) if built.scorer == "tokens" and END in pieces else None
    device = torch.device("cpu") if built.scorer == "ctc" else world.device  # where the beam is
    path = locate(source, site.cache)
    if path.is_dir():
        return read_neural_lm(path, built, device)
    if built.scorer == "ctc" and not {*words_of(path)} <= {*pieces, BEGIN, END, UNKNOWN}:
        words = read_word_arpa(path, pieces, device)
        if words:
            return words
    return read_arpa(path, pieces, device, end)


def read_neural_lm(folder: Path, searched: TaskModel, device: torch.device) -> LanguageModel:
    """The language model of a run or a model folder, whose tokens must be those of the model that is searched."""
    found = open_pretrained(folder)
    loaded = build_model(found.recipe, found.folders.task, found.folders.assets)
    model = loaded.task_model.model
    if not isinstance(model, FusableModel):
        raise ModelError(f"decode.lm: {folder} is not a language model (its task is {found.recipe.task.name}).")
    ours, theirs = tuple(searched.codec.pieces), tuple(loaded.task_model.codec.pieces)
    first = 1 if searched.scorer == "transducer" else 0  # its blank comes last, and the task's first
    if ours[1 - first :] != theirs[1:]:  # token 0 of a language model ends a text, whatever it is for others
        raise ModelError(
            f"decode.lm: {folder} has different tokens ({len(theirs)}, {_fingerprint(theirs)}) than this model "
            f"({len(ours)}, {_fingerprint(ours)}). Train it with the same task.tokenizer."
        )
    load_weights(loaded.task_model.module, found.tensors(), found.weights)
    loaded.task_model.module.to(device).eval()
    return model.language_model(first)


def _fingerprint(pieces: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(pieces).encode()).hexdigest()[:8]
