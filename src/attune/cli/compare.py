"""Compare systems on the same utterances."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, print_json
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.analysis.compare import Opened
    from attune.report.comparison import Comparison
    from attune.report.sets import ScoredSet

HELP = "compare runs or prediction files: differences, significance, utterances won and lost"
EXAMPLE = "attune compare runs/a runs/b --out compare.html"


def add_arguments(parser: ArgumentParser) -> None:
    """Take systems, the set, and where to put the page."""
    parser.add_argument(
        "systems", nargs="+", metavar="RUN|FILE", help="runs, s3://… too, or prediction files (.jsonl); two or more"
    )
    parser.add_argument("--on", metavar="SET", help="the set to compare on (default: test, or dev)")
    parser.add_argument(
        "--retained",
        metavar="SET|MANIFEST",
        help="decode this too with every system, to see what fine-tuning gained here and lost there",
    )
    parser.add_argument("--normalizer", default="none", help="for prediction files (default none)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page to this file (.html)")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the table, and write the page."""
    from attune.analysis.compare import open_systems
    from attune.files import require_writable
    from attune.report.comparison import comparison_json, comparison_table, describe_change
    from attune.site import this_site
    from attune.transfers import with_progress

    if len(arguments.systems) < 2:
        raise ConfigError("A comparison needs two systems or more: attune compare RUN RUN")
    if arguments.out:
        require_writable(arguments.out, "Choose another file.")
    site = with_progress(this_site())
    opened = [open_systems(arguments.systems, arguments.on, arguments.normalizer, site)]
    if arguments.retained:
        opened.append(_decode(arguments))
    compared = _compare_all(opened)
    if arguments.out:
        _write_page(arguments, compared)
    if arguments.json:
        found = [comparison_json(comparison) for comparison, _ in compared]
        print_json({**found[0], **({"retained": found[1]} if arguments.retained else {})})
        return 0
    for comparison, _ in compared:
        left_out = f" ({comparison.left_out:,} not in all of them)" if comparison.left_out else ""
        rows = f"{len(comparison.ids):,} {comparison.unit}{'' if len(comparison.ids) == 1 else 's'}"
        print(f"{comparison.split}: {rows} in common{left_out}")
        print(comparison_table(comparison) + "\n")
    if arguments.retained:
        for (comparison, _), noun in zip(compared, ("here", "retained"), strict=True):
            print(describe_change(comparison, noun))
    if arguments.out:
        print(f"page: {arguments.out}")
    return 0


def _decode(arguments: Namespace) -> list[Opened]:
    from attune.analysis.compare import decode_systems
    from attune.display import Display, drawn
    from attune.site import this_site
    from attune.transfers import with_progress
    from attune.world import World

    display = Display(sys.stderr if arguments.json else sys.stdout)
    return drawn(
        decode_systems(arguments.systems, arguments.retained, with_progress(this_site()), World.alone()), display
    )


def _compare_all(opened: list[list[Opened]]) -> list[tuple[Comparison, ScoredSet]]:
    from attune.analysis.compare import compare_opened

    return [compare_opened(each) for each in opened]


def _write_page(arguments: Namespace, compared: list[tuple[Comparison, ScoredSet]]) -> None:
    from shlex import join

    from attune.report.compare_page import compare_page

    folder = str(arguments.out.absolute().parent)
    comparisons, scored = zip(*compared, strict=True)
    compare_page(comparisons, scored, folder, join(["attune", *arguments.words])).save(arguments.out)
