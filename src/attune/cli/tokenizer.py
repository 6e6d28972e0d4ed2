"""Train a SentencePiece tokenizer on the texts of manifests."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "train a SentencePiece tokenizer on the texts of manifests"
EXAMPLE = "attune tokenizer data/train.jsonl --to tokenizer.model --size 1024 --type bpe"


def add_arguments(parser: ArgumentParser) -> None:
    """Take manifests, the file to write, and the kind of tokenizer."""
    parser.add_argument("manifests", nargs="+", metavar="MANIFEST", help="paths or URLs of manifests with texts")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="SentencePiece model to write")
    parser.add_argument(
        "--size", type=int, required=True, metavar="N", help="vocabulary size, with blank and unknown, e.g. 1024"
    )
    parser.add_argument("--type", choices=("bpe", "unigram"), default="bpe", help="model type (default bpe)")
    parser.add_argument("--normalizer", default="none", metavar="NAME", help="normalizer of the texts (default none)")


def run(arguments: Namespace) -> int:
    """Train, and print how to use it in a recipe."""
    from attune.site import this_site
    from attune.stages.prepare import TokenizerRequest, learn_tokens

    wish = TokenizerRequest(arguments.type, arguments.size, arguments.normalizer)
    learned = learn_tokens(arguments.manifests, arguments.to, wish, this_site(workers=0))
    print(
        f"{arguments.to}: {learned.tokens} tokens from {learned.texts:,} texts, {learned.per_word:.2f} tokens per word"
    )
    print(f"In a recipe: task: {{tokens: {arguments.type}, tokenizer: {arguments.to}}}")
    return 0
