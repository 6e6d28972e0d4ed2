"""Look at a recipe or a manifest before anything runs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, add_overrides, at_least, local_path, print_json, stored_recipe, wrapped
from attune.errors import ConfigError
from attune.styles import duration

if TYPE_CHECKING:
    from attune.corpora import RowProblem
    from attune.loading.data import Example
    from attune.recipe import Recipe
    from attune.site import Site
    from attune.stages.check import PlanCheck, RecipeCheck, RowsCheck, SplitCheck
    from attune.stages.fit import Fit
    from attune.stages.fit_elsewhere import FitElsewhere
    from attune.stages.score_floor import ScoreFloor
    from attune.training.adapt import Adapted

HELP = "check a recipe (data, batches, learning rate, first example) or a manifest before training"
EXAMPLE = "attune check recipes/demo.yaml data.max_seconds=20"

MANIFESTS = (".jsonl", ".csv", ".tsv")
SHOWN = 10  # problems of a kind
SHOWN_UNKNOWN = 40
OUTCOMES = {
    "fail": " (fix them, or set data.bad_rows=drop)",
    "drop": " (skipped: data.bad_rows=drop)",
}
LONG_ROWS_FAIL = " (fix them; data.long_rows=drop skips those that are too long)"
FIT_OF_A_STREAM = "--fit does not work with a stream. Try data.stream=null data.train=[MANIFEST] with similar audio."
LONG_IN_TRAINING = "too long for the model, skipped in training"
LONG_IN_SCORING = {
    "split": "too long for the model, decoded in pieces split at pauses (data.long_rows=split)",
    "drop": "too long for the model, without a prediction (data.long_rows=drop)",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Take a recipe and overrides, or a manifest, and how deep to look."""
    parser.add_argument("subject", metavar="RECIPE|MANIFEST", help="recipe, or .jsonl, .csv or .tsv manifest")
    add_overrides(parser)
    parser.add_argument(
        "--audio",
        type=_count,
        metavar="N|all",
        help="decode N utterances of each manifest, or all (default all)",
    )
    parser.add_argument("--no-audio", dest="audio", action="store_const", const=0, help="decode no audio: --audio 0")
    parser.add_argument(
        "--fit", action="store_true", help="run the largest batch once, and propose the largest micro_seconds that fits"
    )
    parser.add_argument(
        "--memory",
        type=at_least(1),
        metavar="GIB",
        help="with --fit: estimate, without running, for devices with so much memory each",
    )
    parser.add_argument("--devices", type=at_least(1), metavar="N", help="with --memory: so many (default 1)")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="device for --fit (default auto)"
    )
    parser.add_argument("--workers", type=at_least(0), metavar="N", help="loader workers (default: cores - 1)")
    add_json(parser)


def _count(text: str) -> int | None:
    """The type of --audio."""
    return None if text == "all" else at_least(0)(text)


def run(arguments: Namespace) -> int:
    """Print what was found; exit 2 when it would stop a run, or when a manifest is not clean."""
    from attune.site import this_site
    from attune.transfers import with_progress

    if (arguments.memory and not arguments.fit) or (arguments.devices and not arguments.memory):
        raise ConfigError("--devices, --memory and --fit go together: --fit --memory 80 --devices 8.")
    site = with_progress(this_site(arguments.workers, arguments.device))
    if Path(arguments.subject).suffix.lower() in MANIFESTS:
        return _check_manifest(arguments, site)
    recipe_of_run = stored_recipe(arguments.subject)
    if Path(arguments.subject).is_dir() and not Path(arguments.subject, "recipe.yaml").is_file():
        raise ConfigError(
            f"{arguments.subject} is a folder. Give a recipe (.yaml) or a manifest ({', '.join(MANIFESTS)})."
        )
    from attune import recipe

    return _check_recipe(
        arguments, recipe.load(recipe_of_run or local_path(arguments.subject), arguments.overrides).recipe, site
    )


def _check_manifest(arguments: Namespace, site: Site) -> int:
    from attune.display import Display, drawn
    from attune.stages.check import check_manifest

    if arguments.overrides:
        raise ConfigError(
            f"{arguments.subject} is a manifest; overrides such as {arguments.overrides[0]} need a recipe."
        )
    found = drawn(check_manifest(arguments.subject, arguments.audio, site), Display(sys.stderr))
    if arguments.json:
        print_json({"is_sound": found.is_sound, **asdict(found)})
    else:
        verdict = "No problems found." if found.is_sound else "Fix or remove these rows."
        _print_sections([[*_table([found]), _audio_line([found])], *_row_problems(found, ""), [verdict]])
    return 0 if found.is_sound else 2


def _check_recipe(arguments: Namespace, recipe: Recipe, site: Site) -> int:
    from attune.display import Display, drawn
    from attune.stages.check import check_recipe

    found = drawn(check_recipe(recipe, arguments.audio, site), Display(sys.stderr))
    fits = arguments.fit and found.can_run and not recipe.data.stream
    fit = _try_fit(recipe, site, arguments.devices or 1, arguments.memory) if fits else None
    if arguments.fit and recipe.data.stream:
        print(FIT_OF_A_STREAM, file=sys.stderr)
    if arguments.json:
        print_json({"can_run": found.can_run, **asdict(found), **({"fit": asdict(fit)} if fit else {})})
    else:
        _print_sections([*_sections(found, recipe), *([_memory_lines(fit)] if fit else [])])
    return 0 if found.can_run and (fit is None or fit.fits) else 2


def _try_fit(recipe: Recipe, site: Site, devices: int, memory: int | None) -> Fit | FitElsewhere:
    if memory is not None:
        from attune.stages.fit_elsewhere import fit_elsewhere

        return fit_elsewhere(recipe, site, devices, memory * 2**30)
    from attune.stages.fit import check_fit

    return check_fit(recipe, site)


def _memory_lines(fit: Fit | FitElsewhere) -> list[str]:
    from attune.stages.fit import Fit

    return _fit_lines(fit) if isinstance(fit, Fit) else _elsewhere_lines(fit)


def _elsewhere_lines(fit: FitElsewhere) -> list[str]:
    step = fit.step
    parts = (step.weights, step.gradients, step.state, step.activations)
    lines = {
        "one device": "weights {:.2f}, gradients {:.2f}, optimizer {:.2f}, activations {:.2f} GiB".format(
            *map(_gib, parts)
        ),
        "worst batch": f"{fit.utterances:,} utterances, {fit.seconds:.1f} s with padding",
    }
    for each in fit.placements:
        setting = f"train.shard={each.shard}" + (" train.offload=true" if each.offload else "")
        host = f", {_gib(each.host):.2f} GiB of main memory" if each.host else ""
        verdict = ("fits" if each.fits else "does not fit") + (" (this recipe)" if each.is_own else "")
        lines[setting] = f"{_gib(each.device):.2f} GiB{host}: {verdict}"
    return _block(f"memory of each of {fit.devices} × {_gib(fit.memory):g} GiB, estimated", lines)


def _gib(size: int) -> float:
    return size / 2**30


def _fit_lines(fit: Fit) -> list[str]:
    peak = "out of memory" if fit.peak is None else f"peak {fit.peak / 2**30:.2f} GiB"
    batch = f"{fit.utterances:,} utterances, {fit.seconds:.1f} s with padding; longest: {', '.join(fit.longest)}"
    lines = {
        "before": f"{fit.before / 2**30:.2f} GiB for weights, gradients and optimizer",
        "worst batch": f"{peak} ({batch})",
        "room": f"{fit.limit / 2**30:.2f} GiB",
    }
    if fit.proposed is None:
        verdict = f"Lower {fit.setting} (now {fit.now:g}) or data.max_seconds, and try again."
    else:
        verdict = f"Largest that should fit: {fit.setting}={fit.proposed:g} (now {fit.now:g})."
    return [*_block("memory", lines), verdict]


def _print_sections(sections: Iterable[Sequence[str]]) -> None:
    print("\n\n".join("\n".join(lines) for lines in sections if lines))


def _sections(found: RecipeCheck, recipe: Recipe) -> Iterator[Sequence[str]]:
    rows = [split.rows for split in found.splits]
    if rows:
        yield [*_table(rows), _audio_line(rows, _why_not_decoded(found))]
    yield [line for split in found.splits for line in _length_lines(split, recipe)]
    for split in found.splits:
        yield from _split_problems(split, recipe)
    yield [f"warning: {leak}" for leak in found.leaks]
    if found.plan:
        yield _block("plan", _plan_lines(found.plan, recipe))
    if found.rates:
        yield _block("learning rate", {f"step {step:,}": f"{rate:.3g}" for step, rate in found.rates})
    if found.example:
        yield _block("first example", _example_lines(found.example))
    if found.parameters is not None:
        yield [
            *_model_lines(found.parameters, found.new_tensors),
            *(wrapped(f"  {note}", "    ") for note in found.notes),
        ]
    for trouble in found.troubles:
        yield [trouble]
    yield ["Ready to train." if found.can_run else "This recipe cannot run yet."]


def _table(found: Sequence[RowsCheck]) -> list[str]:
    header = ["", "utterances", "hours", "speakers", "shortest", "mean", "longest"]
    cells = [header, *(_cells(rows) for rows in found)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]


def _cells(rows: RowsCheck) -> list[str]:
    lengths = (rows.shortest_seconds, rows.seconds / max(1, rows.utterances), rows.longest_seconds)
    counts = (f"{rows.utterances:,}", f"{rows.seconds / 3600:.2f}", f"{rows.speakers:,}" if rows.speakers else "-")
    return [rows.name, *counts, *(f"{seconds:.2f} s" for seconds in lengths)]


def _why_not_decoded(found: RecipeCheck) -> str:
    if found.troubles:
        return "; fix the problems below first"
    return " (--audio 0)" if found.needs_audio else "; this task reads text only"


def _audio_line(found: Sequence[RowsCheck], why_not: str = " (--audio 0)") -> str:
    decoded, bad = sum(rows.decoded for rows in found), sum(len(rows.bad_audio) for rows in found)
    if not decoded:
        return f"audio: not decoded{why_not}"
    total = sum(rows.utterances for rows in found)
    of_all = f" of {total:,}" if decoded < total else ""
    return f"audio: {decoded:,}{of_all} utterances decoded, {f'{bad:,} bad' if bad else 'all good'}"


def _length_lines(split: SplitCheck, recipe: Recipe) -> Iterator[str]:
    long = f"{split.too_long:,} longer than {recipe.data.longest_seconds:g} s"
    short = f"{split.too_short:,} shorter than {recipe.data.min_seconds:g} s"
    if split.rows.name != "train":
        if split.too_long and not (split.bad_targets or split.long_rows):  # their own lines are more exact
            yield f"{split.rows.name}: {long}; scored anyway"
    elif split.too_long or split.too_short:
        lengths = short if recipe.data.max_seconds is None else f"{long}, {short}"
        yield f"train: {lengths}; skipped, {duration(split.outside_seconds)} in total"
        if split.too_long_at:
            more = " …" if split.too_long > len(split.too_long_at) else ""
            yield f"  too long: {', '.join(split.too_long_at)}{more}"


def _split_problems(split: SplitCheck, recipe: Recipe) -> Iterator[list[str]]:
    name, policy = split.rows.name, recipe.data.bad_rows
    yield from _row_problems(split.rows, OUTCOMES[policy])
    outcome = LONG_ROWS_FAIL if recipe.data.long_rows == "fail" else OUTCOMES[policy]
    end = f"learned{outcome}" if name == "train" else "scored"
    yield _problems(f"{name}: {len(split.bad_targets):,} cannot be {end}", split.bad_targets)
    outcome = LONG_IN_TRAINING if name == "train" else LONG_IN_SCORING.get(recipe.data.long_rows or "", "")
    yield _problems(f"{name}: {len(split.long_rows):,} {outcome}", split.long_rows)
    if split.unknown:
        yield [f"{name}: {_counted(split.unknown)}"]
    if split.floor:
        yield _floor_lines(name, split.floor)


def _floor_lines(split: str, floor: ScoreFloor) -> list[str]:
    from attune.report.tables import with_unit

    metric = floor.score.metric
    limit = f"{metric.name} {'ceiling' if metric.higher_is_better else 'floor'}"
    line = f"{split}: {limit} ({', '.join(floor.causes)}): {with_unit(floor.score.value, metric.unit)}"
    hint = "  task.learn=written avoids it for normalizers such as english, which change their own output"
    return [line, hint] if "normalizer" in floor.causes else [line]


def _row_problems(rows: RowsCheck, outcome: str) -> Iterator[list[str]]:
    yield _problems(
        f"{rows.name}: {len(rows.bad_rows):,} bad row{'' if len(rows.bad_rows) == 1 else 's'}{outcome}", rows.bad_rows
    )
    if rows.bad_audio:
        yield _problems(f"{rows.name}: {len(rows.bad_audio):,} with bad audio{outcome}", rows.bad_audio)


def _problems(title: str, problems: Sequence[RowProblem]) -> list[str]:
    if not problems:
        return []
    shown = [f"  {problem.where}: {problem.reason}" for problem in problems[:SHOWN]]
    more = [f"  … and {len(problems) - SHOWN:,} more"] if len(problems) > SHOWN else []
    return [title, *shown, *more]


def _counted(unknown: Mapping[str, int]) -> str:
    kind = "characters" if all(len(what) == 1 for what in unknown) else "labels"
    shown = [f"{what!r} in {count:,}" for what, count in list(unknown.items())[:SHOWN_UNKNOWN]]
    more = [f"and {len(unknown) - SHOWN_UNKNOWN:,} more"] if len(unknown) > SHOWN_UNKNOWN else []
    return f"{len(unknown):,} {kind} are not in the vocabulary (utterances): {', '.join([*shown, *more])}"


def _block(title: str, entries: Mapping[str, str]) -> list[str]:
    width = max(map(len, entries))
    return [title, *(f"  {name:{width}}  {value}" for name, value in entries.items())]


def _plan_lines(plan: PlanCheck, recipe: Recipe) -> dict[str, str]:
    micros = f"{plan.micros:,} micro-batches, {recipe.batches.micros_per_step} per step"
    return {
        "steps per epoch": f"{plan.steps_per_epoch:,} ({micros})",
        "epochs": f"{plan.epochs:.1f} in {round(plan.epochs * plan.steps_per_epoch):,} steps",
        "padding": f"{100 * plan.padding_share:.1f} %",
        "worst batch": f"{plan.worst_utterances:,} utterances, {plan.worst_seconds:.1f} s with padding; "
        f"longest: {', '.join(plan.worst_longest)}",
    }


def _example_lines(example: Example) -> dict[str, str]:
    return {
        "id": example.id,
        "reference": str(example.reference),
        "target": example.target_line,
        **({"reads": str(example.reads)} if example.reads is not None else {}),
        "audio": f"{example.seconds:.2f} s{_frames(example)}",
    }


def _frames(example: Example) -> str:
    """CTC alone needs a frame for every token, and one more between two that are equal."""
    needed = example.frames_needed
    return f", {example.frames} frames; the target needs {needed}" if needed else ""


def _model_lines(adapted: Adapted, new_tensors: Sequence[str]) -> list[str]:
    new = ", ".join(new_tensors[:6]) + (" …" if len(new_tensors) > 6 else "")
    learning = "" if adapted.trainable == adapted.total else f", {adapted.trainable:,} trainable"
    initialized = [f"  randomly initialized: {new}"] if new else []
    return [f"model: {adapted.total:,} parameters{learning}", *initialized]
