"""Choose the weight of a language model for a run, on its dev set."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from attune.cli._ranks import add_site, in_world
from attune.cli._terminal import add_json, add_overrides, print_json

if TYPE_CHECKING:
    from attune.run import Run
    from attune.site import Site
    from attune.studies.tune_fusion import TriedPoint, TunedFusion
    from attune.world import World

HELP = "choose the weight of a language model for a run's beam search, on dev; evaluate then uses it"
EXAMPLE = "attune tune-fusion runs/asr decode.search=beam decode.lm=lm.arpa --on dev --weights 0.1,0.3,0.5"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a run, the language model as an override, and what to try."""
    parser.add_argument("run", help="run of a recognizer")
    add_overrides(parser)
    parser.add_argument(
        "--on", default="dev", metavar="SPLIT|MANIFEST", help="the set to tune on, not test (default dev)"
    )
    parser.add_argument("--weights", type=_numbers, metavar="W,W,…", help="weights (default 0.1,0.2,0.3,0.5,0.7,1)")
    parser.add_argument("--temperatures", type=_above_0, default=(), metavar="T,T,…", help="temperatures of the LM")
    parser.add_argument("--length-powers", type=_numbers, default=(), metavar="P,P,…", help="values of length_power")
    add_site(parser)
    add_json(parser)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(each) for each in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"expected numbers with commas, such as 0.1,0.3; found {text}") from None
    if not all(0 <= each <= 1000 for each in found):
        raise ArgumentTypeError(f"expected numbers from 0 to 1000; found {text}")
    return found


def _above_0(text: str) -> tuple[float, ...]:
    found = _numbers(text)
    if not all(found):
        raise ArgumentTypeError(f"expected numbers above 0, found {text}")
    return found


def run(arguments: Namespace) -> int:
    """Tune on the chosen devices and print what was tried."""
    return in_world(arguments, lambda site, world: _tune(arguments, site, world))


def _tune(arguments: Namespace, site: Site, world: World) -> int:
    from attune.display import Display, drawn
    from attune.errors import ConfigError
    from attune.loading.pretrained import locate_model
    from attune.run import Run
    from attune.stages.eval_target import open_eval_target
    from attune.studies.tune_fusion import FusionGrid, tune_fusion

    run = Run(locate_model(arguments.run, site.cache))
    if not run.checkpoints.is_dir():
        raise ConfigError(f"{arguments.run} is not a run, so the result cannot be saved in its folder. Give a run.")
    target = open_eval_target(arguments.run, arguments.overrides, site)
    given = {"weights": arguments.weights} if arguments.weights else {}
    grid = FusionGrid(**given, temperatures=arguments.temperatures, length_powers=arguments.length_powers)
    display = Display(sys.stderr if arguments.json else sys.stdout)
    found = drawn(tune_fusion(target, run, arguments.on, grid, site, world), display if world.is_first else None)
    if not world.is_first:
        return 0
    if found.reused:
        display.say(f"{found.reused} of {len(found.tried)} settings were decoded before")
    if arguments.json:
        print_json(found.as_json())
    else:
        _print(found, run)
    return 0


def _print(found: TunedFusion, run: Run) -> None:
    from attune.run import TUNED

    print(f"{found.split}, {found.best.score.metric.name} with LM {found.lm}:")
    for each in found.tried:
        print(_line(each, is_best=each is found.best))
    print(f"written to {run.name}/{TUNED}, which evaluate, transcribe and export use")


def _line(each: TriedPoint, is_best: bool) -> str:
    from attune.report.tables import describe_score

    point = each.point
    settings = f"weight {point.lm_weight:g}"
    if point.lm_temperature != 1:
        settings += f", temperature {point.lm_temperature:g}"
    if point.length_power is not None:
        settings += f", length power {point.length_power:g}"
    change = each.difference
    compared = f"  {change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]" if change and point.lm_weight else ""
    return f"{'*' if is_best else ' '} {settings:<40}{describe_score(each.score)}{compared}"
