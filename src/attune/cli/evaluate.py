"""Decode and score a run, a model, or a recipe with other weights."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import add_site, in_world, site_of
from attune.cli._terminal import add_json, at_least, print_json

if TYPE_CHECKING:
    from attune.site import Site
    from attune.stages.subject import EvalTarget
    from attune.world import World

HELP = "decode a run or a model and score it; every utterance exactly once"
EXAMPLE = "attune evaluate runs/demo --on test --batch 8 --devices 2 --out predictions.jsonl"


def add_arguments(parser: ArgumentParser) -> None:
    """Take what to evaluate, on what, and how."""
    parser.add_argument("subject", help="a run, a model folder, or a recipe that names model.weights")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings with the last word")
    parser.add_argument("--on", metavar="NAME|MANIFEST", help="dev, test, train, or a manifest (default: test, or dev)")
    parser.add_argument(
        "--batch", type=at_least(1), metavar="N", help="utterances in a batch (default: as in training)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the predictions here too")
    parser.add_argument("--alignments", type=Path, metavar="FILE", help="write every alignment here, worst first")
    add_site(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Evaluate on the asked-for devices; exit 1 when an utterance has no prediction."""
    from attune.cli._downloads import with_progress
    from attune.stages.subject import open_eval_target, require_places

    subject = open_eval_target(arguments.subject, arguments.overrides, with_progress(site_of(arguments)))
    require_places(subject, arguments.out, arguments.alignments)
    return in_world(arguments, lambda site, world: _evaluate(arguments, subject, site, world))


def _evaluate(arguments: Namespace, subject: EvalTarget, site: Site, world: World) -> int:
    from attune.cli._progress import Display, drawn
    from attune.files import write_text
    from attune.report.alignments import alignments
    from attune.report.tables import scores_table
    from attune.stages.subject import evaluate_target, record

    display = Display(sys.stderr if arguments.json else sys.stdout)
    stage = evaluate_target(subject, arguments.on, arguments.batch, site, world)
    evaluation = drawn(stage, display if world.is_first else None)
    if not world.is_first:
        return 0
    record(subject, evaluation, arguments.out)
    if arguments.alignments:
        write_text(arguments.alignments, "\n".join(f"{block}\n" for block in alignments(evaluation.predictions)))
    if arguments.json:
        print_json({"split": evaluation.split, **evaluation.as_json()})
    else:
        display.say(f"{evaluation.split}: {len(evaluation.predictions):,} utterances, {evaluation.search.kind} search")
        display.say(scores_table({evaluation.split: evaluation.scores, **evaluation.sets}))
    if subject.run:
        display.say(f"kept in {subject.run.predictions(evaluation.split)}")
    for problem in evaluation.problems:
        print(problem, file=sys.stderr)
    return 1 if evaluation.absent else 0
