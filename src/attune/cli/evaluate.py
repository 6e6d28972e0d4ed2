"""Decode and score a run, a model, or a recipe with pretrained weights."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import add_site, in_world, site_of
from attune.cli._terminal import add_json, add_overrides, at_least, json_lines, print_json, print_normalizer_hint
from attune.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attune.cli._progress import Display
    from attune.site import Site
    from attune.stages.eval_target import EvalTarget
    from attune.stages.evaluate import Evaluation
    from attune.types import Prediction
    from attune.world import World

HELP = "decode and score a run or a model"
EXAMPLE = "attune evaluate runs/demo --on dev --on test --batch 8 --devices 2"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a model, the data to evaluate on, and decoding options."""
    parser.add_argument("subject", help="run, model folder, or recipe with model.weights")
    add_overrides(parser)
    parser.add_argument(
        "--on",
        action="append",
        metavar="SPLIT|MANIFEST",
        help="train, dev, test or a manifest; may be repeated (default: test, or dev if there is none)",
    )
    parser.add_argument("--batch", type=at_least(1), metavar="N", help="utterances per batch (default: as in training)")
    parser.add_argument("--out", type=json_lines, metavar="FILE.jsonl", help="write the predictions to this file")
    parser.add_argument("--alignments", type=Path, metavar="FILE", help="write word alignments, worst utterance first")
    add_site(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Evaluate on the chosen devices; exit 1 when an utterance has no prediction."""
    from attune.cli._downloads import with_progress
    from attune.stages.eval_target import open_eval_target, require_places

    if len(arguments.on or ()) > 1 and (arguments.out or arguments.alignments):
        raise ConfigError("--out and --alignments need a single --on. Evaluate the sets one by one.")
    subject = open_eval_target(arguments.subject, arguments.overrides, with_progress(site_of(arguments)))
    require_places(subject, arguments.out, arguments.alignments)
    return in_world(arguments, lambda site, world: _evaluate(arguments, subject, site, world))


def _evaluate(arguments: Namespace, subject: EvalTarget, site: Site, world: World) -> int:
    from attune.cli._progress import Display, drawn
    from attune.stages.eval_target import evaluate_target, record

    display = Display(sys.stderr if arguments.json else sys.stdout)
    done: list[Evaluation] = []
    for on in arguments.on or [None]:
        stage = evaluate_target(subject, on, arguments.batch, site, world, arguments.out)
        done.append(drawn(stage, display if world.is_first else None))
        if world.is_first:
            record(subject, done[-1], arguments.out)
    if not world.is_first:
        return 0
    if arguments.alignments:
        _write_alignments(arguments.alignments, done[0])
    if arguments.json:
        found = [{"split": each.split, **each.as_json()} for each in done]
        print_json(found if len(found) > 1 else found[0])
    else:
        _print_scores(done, display)
    for each in done:
        if subject.run:
            display.say(f"predictions: {subject.run.predictions(each.split)}")
        for problem in each.problems:
            print(problem, file=sys.stderr)
    return 1 if any(each.absent for each in done) else 0


def _print_scores(done: Sequence[Evaluation], display: Display) -> None:
    from attune.report.tables import scores_table

    for each in done:
        display.say(f"{each.split}: {len(each.predictions):,} utterances, {each.search.kind} search")
    sets = [
        {each.split: each.scores, **{_own_name(each, name, done): own for name, own in each.sets.items()}}
        for each in done
    ]
    display.say(scores_table({name: scores for group in sets for name, scores in group.items()}))
    print_normalizer_hint(done[0].scores, "task.normalizer=basic")


def _own_name(evaluation: Evaluation, name: str, done: Sequence[Evaluation]) -> str:
    """The name of a manifest of a split; with that of its split, where there are several."""
    return name if len(done) == 1 else f"{evaluation.split}/{name}"


def _write_alignments(path: Path, evaluation: Evaluation) -> None:
    """Align the texts as they were scored."""
    from attune import catalog
    from attune.files import write_text
    from attune.report.alignments import alignments
    from attune.report.predictions import normalized

    normalizer = evaluation.scores.conditions.get("normalizer")
    predictions: Sequence[Prediction] = evaluation.predictions
    if normalizer:
        predictions = normalized(predictions, catalog.find(catalog.NORMALIZERS, normalizer))
    write_text(path, "\n".join(f"{block}\n" for block in alignments(predictions)))
