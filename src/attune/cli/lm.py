"""Estimate an n-gram language model for beam search."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from attune.cli._terminal import add_json, at_least, print_json

HELP = "estimate an n-gram language model (modified Kneser-Ney, ARPA) of texts, for decode.lm"
EXAMPLE = "attune lm data/train.jsonl more-text.txt --order 5 --tokenizer runs/demo --to lm.arpa --on dev"


def add_arguments(parser: ArgumentParser) -> None:
    """Take texts, the order, the tokens, and the file to write."""
    parser.add_argument(
        "texts", nargs="+", metavar="TEXT", help="manifests with texts, or .txt files with one text per line"
    )
    parser.add_argument("--order", type=at_least(1), default=3, metavar="N", help="longest n-grams (default 3)")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE.arpa", help="file to write")
    parser.add_argument(
        "--tokenizer", metavar="RUN|MODEL", help="count the tokens of this model, for its beam search (default: words)"
    )
    parser.add_argument("--normalizer", default="none", metavar="NAME", help="normalizer of words (default none)")
    parser.add_argument(
        "--prune",
        type=at_least(0),
        nargs="+",
        default=[],
        metavar="COUNT",
        help="drop n-grams with at most this count, one number per order, e.g. 0 0 1",
    )
    parser.add_argument(
        "--on",
        action="append",
        default=[],
        metavar="TEXT|SPLIT",
        help="report perplexity on this text, or on dev or test of the tokenizer's run; may be repeated",
    )
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Estimate, and print the size and the perplexities."""
    from attune.files import explain_write_errors, require_writable
    from attune.site import this_site
    from attune.studies.ngrams import NGramRequest, estimate_ngrams, word_perplexity
    from attune.transfers import with_progress

    require_writable(arguments.to, "Choose another file.")
    given = (arguments.tokenizer, arguments.normalizer, tuple(arguments.on))
    request = NGramRequest(tuple(arguments.texts), arguments.order, tuple(arguments.prune), *given)
    with explain_write_errors(arguments.to, "Choose another file."):
        found = estimate_ngrams(request, arguments.to, with_progress(this_site(device="cpu", workers=0)))
    if arguments.json:
        print_json(found.as_json())
        return 0
    sizes = ", ".join(f"{len(each.keys):,} {number}-grams" for number, each in enumerate(found.model.orders, start=1))
    unit = "tokens" if arguments.tokenizer else "words"
    print(f"{arguments.to}: {sizes} from {found.tokens:,} {unit} in {found.sentences:,} texts")
    for order in found.model.guessed:
        print(f"{order}-grams: too few counts to estimate discounts; used 0.5, 1 and 1.5")
    for name, each in found.likelihoods.items():
        per_word = f", {word_perplexity(each, found.words[name]):.2f} per word" if arguments.tokenizer else ""
        print(f"{name}: perplexity {each.perplexity:.2f}{per_word}, {each.unknown:,} unknown of {each.words:,}")
    print(f"In a recipe: decode: {{search: beam, lm: {arguments.to}}}")
    return 0
