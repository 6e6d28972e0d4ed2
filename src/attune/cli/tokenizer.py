"""Train a SentencePiece tokenizer on the texts of manifests, or as a recipe says."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.recipe import Recipe
    from attune.stages.prepare import TokenizerRequest

HELP = "train a SentencePiece tokenizer on the texts of manifests"
EXAMPLE = "attune tokenizer data/train.jsonl --to tokenizer.model --size 1024 --type bpe"
FILE = "tokenizer.model"


def add_arguments(parser: ArgumentParser) -> None:
    """Take manifests or a recipe, the file to write, and the kind of tokenizer."""
    parser.add_argument(
        "manifests",
        nargs="+",
        metavar="MANIFEST|RECIPE",
        help="paths or URLs of manifests with texts; or a recipe and overrides, for its data, tokens and vocabulary",
    )
    parser.add_argument("--to", type=Path, metavar="FILE", help=f"model to write (of a recipe: RUN/{FILE})")
    parser.add_argument("--size", type=int, metavar="N", help="vocabulary size, with blank and unknown, e.g. 1024")
    parser.add_argument("--type", choices=("bpe", "unigram"), default="bpe", help="model type (default bpe)")
    parser.add_argument("--normalizer", default="none", metavar="NAME", help="normalizer of the texts (default none)")


def run(arguments: Namespace) -> int:
    """Train, and print how to use it in a recipe."""
    from attune.run_store import require_folder
    from attune.site import this_site
    from attune.stages.prepare import TokenizerRequest, learn_tokens

    first, *others = arguments.manifests
    if recipe := _recipe(first, others):
        sources, wish = recipe.data.train, _wish(recipe)
        to = arguments.to or require_folder(recipe.run, "--to FILE") / FILE
        to.parent.mkdir(parents=True, exist_ok=True)
    elif arguments.to is None or arguments.size is None:
        raise ConfigError("Give --to FILE and --size N, or a recipe that has a run, task.tokens and task.vocabulary.")
    else:
        sources, to = arguments.manifests, arguments.to
        wish = TokenizerRequest(arguments.type, arguments.size, arguments.normalizer)
    learned = learn_tokens(sources, to, wish, this_site(workers=0))
    print(f"{to}: {learned.tokens} tokens from {learned.texts:,} texts, {learned.per_word:.2f} tokens per word")
    print(f"In a recipe: task: {{tokens: {wish.kind}, tokenizer: {to}}}")
    return 0


def _recipe(named: str, overrides: list[str]) -> Recipe | None:
    """The recipe of this name, if it is one; a manifest has no suffix of YAML, and exists or has an address."""
    from attune import recipe
    from attune.catalog import shipped_recipes

    path = Path(named)
    if path.suffix not in (".yaml", ".yml") and named not in shipped_recipes():
        return None
    return recipe.load(path, overrides).recipe


def _wish(recipe: Recipe) -> TokenizerRequest:
    from attune.stages.prepare import TokenizerRequest

    task = recipe.task.config
    kind, size = getattr(task, "tokens", None), getattr(task, "vocabulary", None)
    if kind not in ("bpe", "unigram") or size is None:
        raise ConfigError("The recipe trains no tokenizer: set task.tokens=unigram and task.vocabulary=N.")
    return TokenizerRequest(kind, size, getattr(task, "normalizer", "none"))
