"""Learn SentencePiece tokens from the texts of manifests."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "learn SentencePiece tokens from the texts of manifests"
EXAMPLE = "attune tokenizer data/train.jsonl --to tokenizer.model --size 1024 --type bpe"


def add_arguments(parser: ArgumentParser) -> None:
    """Take manifests, the file to write and what kind of tokens to learn."""
    parser.add_argument("manifests", nargs="+", metavar="MANIFEST", help="manifests with texts, or their URLs")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="the SentencePiece model to write")
    parser.add_argument("--size", type=int, required=True, metavar="N", help="how many tokens, with blank and unknown")
    parser.add_argument("--type", choices=("bpe", "unigram"), default="bpe", help="kind of tokens")
    parser.add_argument("--normalizer", default="none", metavar="NAME", help="what the texts go through first")


def run(arguments: Namespace) -> int:
    """Say what was learned, and how a recipe uses it."""
    from attune.site import this_site
    from attune.stages.prepare import TokenizerRequest, learn_tokens

    wish = TokenizerRequest(arguments.type, arguments.size, arguments.normalizer)
    learned = learn_tokens(arguments.manifests, arguments.to, wish, this_site(workers=0))
    print(f"{arguments.to}: {learned.tokens} tokens from {learned.texts:,} texts, {learned.per_word:.2f} for each word")
    print(f"In a recipe: task: {{tokens: {arguments.type}, tokenizer: {arguments.to}}}")
    return 0
