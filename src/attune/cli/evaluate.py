"""Decode and score a run, a model, or a recipe with pretrained weights."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import add_site, in_world, site_of
from attune.cli._terminal import add_json, add_overrides, at_least, print_json

if TYPE_CHECKING:
    from attune.site import Site
    from attune.stages.eval_target import EvalTarget
    from attune.world import World

HELP = "decode and score a run or a model"
EXAMPLE = "attune evaluate runs/demo --on test --batch 8 --devices 2 --out predictions.jsonl"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a model, the data to evaluate on, and decoding options."""
    parser.add_argument("subject", help="run, RUN@best|last|step-N, model of any toolkit, or recipe with model.weights")
    add_overrides(parser)
    parser.add_argument(
        "--on", metavar="SPLIT|MANIFEST", help="train, dev, test or a manifest (default: test, or dev if there is none)"
    )
    parser.add_argument("--batch", type=at_least(1), metavar="N", help="utterances per batch (default: as in training)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the predictions to this .jsonl too")
    parser.add_argument("--alignments", type=Path, metavar="FILE", help="write word alignments, worst utterance first")
    add_site(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Evaluate on the chosen devices; exit 1 when an utterance has no prediction."""
    from attune.cli._downloads import with_progress
    from attune.stages.eval_target import open_eval_target, require_places

    subject = open_eval_target(arguments.subject, arguments.overrides, with_progress(site_of(arguments)))
    require_places(subject, arguments.out, arguments.alignments)
    return in_world(arguments, lambda site, world: _evaluate(arguments, subject, site, world))


def _evaluate(arguments: Namespace, subject: EvalTarget, site: Site, world: World) -> int:
    from attune.display import Display, drawn
    from attune.files import write_text
    from attune.report.alignments import alignments
    from attune.report.tables import scores_table
    from attune.stages.eval_target import evaluate_target, record

    display = Display(sys.stderr if arguments.json else sys.stdout)
    stage = evaluate_target(subject, arguments.on, arguments.batch, site, world, arguments.out)
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
        display.say(f"predictions: {subject.run.predictions(evaluation.split)}")
    for problem in evaluation.problems:
        print(problem, file=sys.stderr)
    return 1 if evaluation.absent else 0
