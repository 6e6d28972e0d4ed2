"""Decode and score a run, a model, or a recipe with pretrained weights."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._eval_shards import evaluate_shards, require_shards
from attune.cli._eval_stream import evaluate_streams, require_stream_options
from attune.cli._ranks import add_launch, add_per_rank, add_site, in_world, site_of
from attune.cli._terminal import add_json, add_overrides, at_least, print_json, print_normalizer_hint
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.display import Display
    from attune.report.confusions import Confusion
    from attune.site import Site
    from attune.stages.eval_target import EvalTarget
    from attune.stages.evaluate import Evaluation
    from attune.types import Prediction
    from attune.world import World

HELP = "decode and score a run or a model"
EXAMPLE = "attune evaluate runs/demo --on dev --on test --by speaker"
CONFUSIONS = 10  # shown by default


def add_arguments(parser: ArgumentParser) -> None:
    """Take a model, the data to evaluate on, and decoding options."""
    parser.add_argument("subject", help="run, RUN@best|last|step-N, model of any toolkit, or recipe with model.weights")
    add_overrides(parser)
    parser.add_argument(
        "--on",
        action="append",
        metavar="SPLIT|MANIFEST",
        help="train, dev, test or a manifest; may be repeated (default: test, or dev if there is none)",
    )
    parser.add_argument("--batch", type=at_least(1), metavar="N", help="utterances per batch (default: as in training)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the predictions to this file: .jsonl, .json, .csv, .tsv or .txt"
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
    parser.add_argument(
        "--shards",
        metavar="s3://BUCKET/PREFIX/",
        help="keep what is decoded here, in shards; the same command decodes only those that are missing",
    )
    parser.add_argument(
        "--stream",
        action="store_true",
        help="feed recordings as a microphone would, and report how late the first and the last word were",
    )
    add_launch(parser)
    add_per_rank(parser)
    add_site(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Evaluate on the chosen devices; exit 1 when an utterance has no prediction."""
    from attune.stages.eval_target import open_eval_target, require_places
    from attune.transfers import with_progress

    if len(arguments.on or ()) > 1 and (arguments.out or arguments.alignments):
        raise ConfigError("--out and --alignments need a single --on. Evaluate the sets one by one.")
    require_shards(arguments)
    if arguments.stream:
        require_stream_options(arguments)
    site = with_progress(site_of(arguments))
    subject = open_eval_target(arguments.subject, arguments.overrides, site)
    if arguments.stream:
        return evaluate_streams(arguments, subject, site)
    require_places(subject, arguments.out, arguments.alignments)
    if arguments.shards:
        return _evaluate_shards(arguments, subject, site)
    return in_world(arguments, lambda site, world: _evaluate(arguments, subject, site, world))


def _evaluate_shards(arguments: Namespace, subject: EvalTarget, site: Site) -> int:
    from attune.display import Display
    from attune.stages.eval_target import record

    display = Display(sys.stderr if arguments.json else sys.stdout)
    done = [evaluate_shards(arguments, subject, on, site, display) for on in arguments.on or [None]]
    for each in done:
        record(subject, each, arguments.out)
    return _report(arguments, subject, done, display)


def _evaluate(arguments: Namespace, subject: EvalTarget, site: Site, world: World) -> int:
    from attune.display import Display, drawn
    from attune.stages.eval_target import evaluate_target, record

    display = Display(sys.stderr if arguments.json else sys.stdout)
    done: list[Evaluation] = []
    for on in arguments.on or [None]:
        stage = evaluate_target(subject, on, arguments.batch, site, world, arguments.out, arguments.by)
        done.append(drawn(stage, display if world.is_first else None))
        if world.is_first:
            record(subject, done[-1], arguments.out)
    return _report(arguments, subject, done, display) if world.is_first else 0


def _report(arguments: Namespace, subject: EvalTarget, done: Sequence[Evaluation], display: Display) -> int:
    if arguments.json:
        found = [{"split": each.split, **each.as_json(), **_details(each, arguments)} for each in done]
        print_json(found if len(found) > 1 else found[0])
    else:
        _print_scores(done, display)
        for each in done:
            _print_details(each, arguments, display)
    if arguments.alignments:  # texts only: of others the scores are shown at least
        _write_alignments(arguments.alignments, done[0])
    for each in done:
        if subject.run:
            display.say(f"predictions: {subject.run.name}/predictions/{each.split}.jsonl")
        for problem in each.problems:
            print(problem, file=sys.stderr)
    for what, path in {"results": arguments.out, "alignments": arguments.alignments}.items():
        if path:
            display.say(f"{what}: {path}")
    return 1 if any(each.absent for each in done) else 0


def _print_scores(done: Sequence[Evaluation], display: Display) -> None:
    from attune.report.tables import scores_table

    for each in done:
        display.say(f"{each.split}: {len(each.predictions):,} utterances, {_how(each)}")
    sets = [
        {each.split: each.scores, **{_own_name(each, name, done): own for name, own in each.sets.items()}}
        for each in done
    ]
    display.say(scores_table({name: scores for group in sets for name, scores in group.items()}))
    print_normalizer_hint(done[0].scores, "task.normalizer=basic")


def _own_name(evaluation: Evaluation, name: str, done: Sequence[Evaluation]) -> str:
    """The name of a manifest of a split; of several splits, manifests of one name keep their split."""
    return name if len(done) == 1 else f"{evaluation.split}/{name}"


def _print_details(evaluation: Evaluation, arguments: Namespace, display: Display) -> None:
    from attune.report.tables import groups_table

    if arguments.per_rank:
        from attune.report.ranks import ranks_table

        display.say(f"\n{ranks_table(evaluation.rank_counts)}")
    if evaluation.groups:
        display.say(f"\n{groups_table(evaluation.groups, arguments.by)}")
    if arguments.confusions:
        found = _confusions(evaluation)[: arguments.confusions]
        display.say("\n".join(["\nconfusions:" if found else "\nconfusions: none", *(f"  {each}" for each in found)]))


def _how(evaluation: Evaluation) -> str:
    """The search, its speed, and the languages where the model detects them."""
    search = evaluation.search
    parts = [f"{search.kind} search"]
    if search.fusion:
        parts.append(f"LM {search.lm} × {search.fusion.weight:g}")
    if search.phrases and search.phrases.phrases:
        parts.append(f"{len(search.phrases.phrases)} phrases")
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


def _details(evaluation: Evaluation, arguments: Namespace) -> dict[str, object]:
    """What a command shows, and a run does not keep: times differ from machine to machine."""
    from attune.report.tables import scores_json

    factor, languages, groups = evaluation.real_time_factor, _languages(evaluation), evaluation.groups
    by = {"by": arguments.by, "groups": {name: scores_json(each) for name, each in groups.items()}}
    return {
        "rtf": None if factor is None else round(factor, 6),
        "audio_seconds": round(evaluation.audio_seconds, 3),
        "decoding_seconds": round(evaluation.decoding_seconds, 3),
        **({"languages": languages} if languages else {}),
        **(by if arguments.by else {}),
        **({"confusions": [asdict(each) for each in _confusions(evaluation)[: arguments.confusions]]}
           if arguments.confusions else {}),
    }  # fmt: skip


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
