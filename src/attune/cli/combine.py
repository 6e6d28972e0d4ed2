"""Combine the outputs of several systems into one predictions file."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, between, print_json
from attune.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attune.analysis.combine import Calibrated, System
    from attune.metrics import Scores
    from attune.scoring.rover import Vote, VotingRules

HELP = "combine systems: ROVER for transcripts, calibrated fusion for labels and trials"
EXAMPLE = (
    "attune combine a/test.jsonl b/test.jsonl c/test.jsonl --fit a/dev.jsonl b/dev.jsonl c/dev.jsonl --out all.jsonl"
)

VOTES: tuple[Vote, ...] = ("frequency", "average", "maximum")


def add_arguments(parser: ArgumentParser) -> None:
    """Take the files of the systems, how to combine them, and where to write."""
    parser.add_argument(
        "systems", nargs="+", type=Path, metavar="FILE", help="of each system: predictions, transcribe's JSON, or a CTM"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl", help="write the predictions there")
    parser.add_argument(
        "--task", choices=("transcribe", "classify", "verify"), default="transcribe", help="task (default transcribe)"
    )
    parser.add_argument(
        "--fit", nargs="+", type=Path, metavar="FILE", help="the same systems on a dev set, to fit the combination on"
    )
    parser.add_argument("--vote", choices=VOTES, help="ROVER: by frequency (default), average or maximum confidence")
    parser.add_argument(
        "--alpha", type=between(0, 1), metavar="A", help="ROVER: weight of frequency beside confidence (default 0.5)"
    )
    parser.add_argument(
        "--null-confidence",
        type=between(0, 1),
        metavar="P",
        help="ROVER: confidence that there is no word (default 0.5)",
    )
    parser.add_argument("--nbest", action="store_true", help="ROVER: vote over the n best hypotheses of each system")
    parser.add_argument(
        "--normalizer", default="none", metavar="NAME", help="ROVER: for words, before they are compared"
    )
    parser.add_argument("--references", type=Path, metavar="FILE", help="manifest or predictions with the references")
    parser.add_argument("--trials", type=Path, metavar="FILE", help="verify: trial list of the systems' embeddings")
    parser.add_argument("--fit-trials", type=Path, metavar="FILE", help="verify: trial list of the --fit embeddings")
    parser.add_argument(
        "--prior",
        type=between(1e-6, 1 - 1e-6),
        default=0.5,
        metavar="P",
        help="verify: target prior to fit at (default 0.5)",
    )
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Combine, write, and show the scores of the systems and of their combination."""
    from attune.files import require_writable

    if arguments.fit and len(arguments.fit) != len(arguments.systems):
        raise ConfigError(
            f"--fit has {len(arguments.fit)} files for {len(arguments.systems)} systems. Give one for each, "
            "in the same order."
        )
    if arguments.task != "transcribe" and not arguments.fit:
        raise ConfigError(f"--task {arguments.task} needs --fit FILE…: the same systems on a dev set.")
    require_writable(arguments.out, "Name another file.")
    if arguments.task == "transcribe":
        return _vote(arguments)
    return _calibrate(arguments)


def _vote(arguments: Namespace) -> int:
    from attune import catalog
    from attune.analysis.combine import combine_transcripts, fit_voting
    from attune.report.predictions import write_predictions

    normalize = catalog.find(catalog.NORMALIZERS, arguments.normalizer)
    systems = _systems(arguments.systems, arguments, normalize)
    rules = _rules(arguments)
    if arguments.fit:
        votes: list[Vote] = [arguments.vote] if arguments.vote else list(VOTES)
        rules = fit_voting(_systems(arguments.fit, arguments, normalize), votes, arguments.nbest)
    found = combine_transcripts(systems, rules, arguments.nbest)
    write_predictions(arguments.out, found)
    _show_votes(arguments, systems, rules)
    return 0


def _systems(paths: Sequence[Path], arguments: Namespace, normalize: Callable[[str], str]) -> list[System]:
    from attune.analysis.combine import SystemTranscript, read_references, read_system, silent_in, with_references

    read = [read_system(path, normalize) for path in paths]
    systems: list[System] = []
    for path, system in zip(paths, read, strict=True):
        silent = silent_in(system, read) if path.suffix.lower() == ".ctm" else []
        if silent:
            of = f"{len(silent):,} of {len(silent) + len(system):,} recordings"
            print(f"{path} has no word of {of}, such as {silent[0]!r}", file=sys.stderr)
        systems.append({**system, **dict.fromkeys(silent, SystemTranscript(()))})
    # A CTM has no references, but another system may have those of the same recordings.
    known = {name: row.reference for system in systems for name, row in system.items() if row.reference is not None}
    if arguments.references:
        known |= {name: normalize(text) for name, text in read_references(arguments.references).items()}
    return with_references(systems, known)


def _rules(arguments: Namespace) -> VotingRules:
    from attune.scoring.rover import VotingRules

    vote: Vote = arguments.vote or "frequency"
    given = (arguments.alpha, arguments.null_confidence)
    if vote == "frequency":
        if not arguments.fit and given != (None, None):
            raise ConfigError("--alpha and --null-confidence need --vote average or maximum.")
        return VotingRules()
    alpha, null = (0.5 if each is None else each for each in given)
    return VotingRules(vote, alpha, null)


def _show_votes(arguments: Namespace, systems: Sequence[System], rules: VotingRules) -> None:
    from attune.analysis.combine import combine_transcripts
    from attune.report.predictions import read_predictions
    from attune.report.tables import scores_json, scores_table
    from attune.scoring.error_rates import score_texts
    from attune.scoring.texts import texts_of

    single = {path.name if len({p.name for p in arguments.systems}) == len(arguments.systems) else str(path): system
              for path, system in zip(arguments.systems, systems, strict=True)}  # fmt: skip
    scores: dict[str, Scores] = {}
    combined = read_predictions(arguments.out)
    if all(isinstance(each.reference, str) for each in combined):
        alone = {name: combine_transcripts([system], rules) for name, system in single.items()}
        scores = {name: score_texts(*texts_of(found)) for name, found in {**alone, "combined": combined}.items()}
    if arguments.json:
        print_json({
            "out": str(arguments.out),
            "rules": asdict(rules),
            "scores": {name: scores_json(each) for name, each in scores.items()},
        })  # fmt: skip
        return
    how = "" if rules.vote == "frequency" else f", alpha {rules.alpha:g}, null confidence {rules.null_confidence:g}"
    print(f"{arguments.out}: {len(combined):,} utterances, vote by {rules.vote}{how}")
    if scores:
        print(scores_table(scores))
        if arguments.normalizer == "none":
            print("normalizer none: case and punctuation count. To ignore them: --normalizer basic")


def _calibrate(arguments: Namespace) -> int:
    from attune.analysis.combine import combine_labels, combine_trials, read_labels, read_trials
    from attune.report.predictions import write_predictions

    if arguments.task == "classify":
        found = combine_labels(*([read_labels(each) for each in some] for some in (arguments.fit, arguments.systems)))
    else:
        dev = [read_trials(path, arguments.fit_trials) for path in arguments.fit]
        found = combine_trials(
            dev, [read_trials(path, arguments.trials) for path in arguments.systems], arguments.prior
        )
    write_predictions(arguments.out, found.predictions)
    _show_calibration(arguments, found)
    return 0


def _show_calibration(arguments: Namespace, found: Calibrated) -> None:
    from attune.cli.score import score_predictions
    from attune.report.tables import scores_json, scores_table

    has_references = all(each.reference is not None for each in found.predictions)
    scores = score_predictions(arguments.task, list(found.predictions)) if has_references else None
    if arguments.json:
        print_json({
            "out": str(arguments.out),
            "fusions": [asdict(each) for each in found.fusions],
            "scores": scores_json(scores) if scores else None,
            "ece": found.ece,
            "reliability": [asdict(each) for each in found.bins],
        })  # fmt: skip
        return
    print(f"{arguments.out}: {len(found.predictions):,} predictions")
    for fusion in found.fusions:
        weights = " + ".join(f"{weight:.4g} × score {number}" for number, weight in enumerate(fusion.weights, 1))
        print(f"  log-odds = {weights} + {fusion.offset:.4g}")
    if scores:
        print(scores_table({"combined": scores}))
    if found.ece is not None:
        print(f"expected calibration error {found.ece:.2f} %")
    for each in found.bins:
        print(
            f"  {each.low:.2f}–{each.high:.2f}: {each.count:6,}  confidence {each.confidence:.3f}  "
            f"right {each.accuracy:.3f}"
        )
