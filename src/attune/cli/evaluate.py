"""Decode and score a run, a model, or a recipe with pretrained weights."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import add_site, in_world, site_of
from attune.cli._terminal import add_json, add_overrides, at_least, print_json

if TYPE_CHECKING:
    from attune.report.confusions import Confusion
    from attune.site import Site
    from attune.stages.eval_target import EvalTarget
    from attune.stages.evaluate import Evaluation
    from attune.world import World

HELP = "decode and score a run or a model"
EXAMPLE = "attune evaluate runs/demo --on test --by speaker --out predictions.csv"
CONFUSIONS = 10  # listed by default


def add_arguments(parser: ArgumentParser) -> None:
    """Take a model, the data to evaluate on, and decoding options."""
    parser.add_argument("subject", help="run, model folder, or recipe with model.weights")
    add_overrides(parser)
    parser.add_argument(
        "--on", metavar="SPLIT|MANIFEST", help="train, dev, test or a manifest (default: test, or dev if there is none)"
    )
    parser.add_argument("--batch", type=at_least(1), metavar="N", help="utterances per batch (default: as in training)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the predictions there too: .jsonl, .json, .csv, .tsv or .txt"
    )
    parser.add_argument(
        "--by", metavar="speaker|language|LABEL", help="score each speaker, language, or value of a label too"
    )
    parser.add_argument(
        "--confusions",
        type=at_least(1),
        nargs="?",
        const=CONFUSIONS,
        metavar="N",
        help=f"list the N most frequent confusions of labels or words (default {CONFUSIONS})",
    )
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
    from attune.cli._progress import Display, drawn
    from attune.files import write_text
    from attune.report.alignments import alignments
    from attune.report.tables import groups_table, scores_table
    from attune.stages.eval_target import evaluate_target, record

    display = Display(sys.stderr if arguments.json else sys.stdout)
    stage = evaluate_target(subject, arguments.on, arguments.batch, site, world, arguments.out, arguments.by)
    evaluation = drawn(stage, display if world.is_first else None)
    if not world.is_first:
        return 0
    record(subject, evaluation, arguments.out)
    if arguments.alignments:
        write_text(arguments.alignments, "\n".join(f"{block}\n" for block in alignments(evaluation.predictions)))
    confusions = _confusions(evaluation)[: arguments.confusions] if arguments.confusions else None
    if arguments.json:
        print_json(
            {"split": evaluation.split, **evaluation.as_json(), **_details(evaluation, arguments.by, confusions)}
        )
    else:
        display.say(f"{evaluation.split}: {len(evaluation.predictions):,} utterances, {_how(evaluation)}")
        display.say(scores_table({evaluation.split: evaluation.scores, **evaluation.sets}))
        if evaluation.groups:
            display.say("\n" + groups_table(evaluation.groups, arguments.by))
        if confusions is not None:
            display.say("\nconfusions: " + ("none" if not confusions else ""))
            for confusion in confusions:
                display.say(f"  {confusion}")
    if subject.run:
        display.say(f"predictions: {subject.run.predictions(evaluation.split)}")
    for problem in evaluation.problems:
        print(problem, file=sys.stderr)
    return 1 if evaluation.absent else 0


def _how(evaluation: Evaluation) -> str:
    """The search, its speed, and the languages where the model detects them."""
    parts = [f"{evaluation.search.kind} search"]
    if factor := evaluation.real_time_factor:
        parts.append(f"RTF {factor:.4f} ({1 / factor:.0f}× real time)")
    if languages := _languages(evaluation):
        parts.append("languages " + ", ".join(f"{name} {count:,}" for name, count in languages.items()))
    return ", ".join(parts)


def _languages(evaluation: Evaluation) -> dict[str, int]:
    """How many utterances are in each language, given or detected, the most frequent first."""
    return dict(Counter(each.language for each in evaluation.predictions if each.language).most_common())


def _confusions(evaluation: Evaluation) -> list[Confusion]:
    from attune.catalog import NORMALIZERS, find
    from attune.report.confusions import label_confusions, word_confusions

    normalizer = evaluation.scores.conditions.get("normalizer")
    if normalizer is None:
        return label_confusions(evaluation.predictions)
    return word_confusions(evaluation.predictions, find(NORMALIZERS, normalizer))


def _details(evaluation: Evaluation, by: str | None, confusions: Sequence[Confusion] | None) -> dict[str, object]:
    """What a command shows, and a run does not keep: times differ from machine to machine."""
    from attune.report.tables import scores_json

    factor, languages = evaluation.real_time_factor, _languages(evaluation)
    return {
        "rtf": None if factor is None else round(factor, 6),
        "audio_seconds": round(evaluation.audio_seconds, 3),
        "decoding_seconds": round(evaluation.decoding_seconds, 3),
        **({"languages": languages} if languages else {}),
        **({"by": by, "groups": {name: scores_json(each) for name, each in evaluation.groups.items()}} if by else {}),
        **({"confusions": [asdict(each) for each in confusions]} if confusions is not None else {}),
    }
