"""`attune evaluate --stream`: every recording as a microphone would give it, with scores and latency."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.catalog import own_name
from attune.cli._terminal import print_json
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.live_scores import StreamEvaluation
    from attune.site import Site
    from attune.stages.eval_target import EvalTarget

NOT_WITH = ("shards", "out", "alignments", "by", "confusions", "batch")
NAMES = {"first_word": "first word", "last_word": "last word"}


def require_stream_options(arguments: Namespace) -> None:
    """Refuse what is about whole utterances."""
    given = [f"--{name}" for name in NOT_WITH if getattr(arguments, name)]
    given += ["--launch ray"] if arguments.launch == "ray" else []
    if given:
        raise ConfigError(f"--stream prints scores and latency; it does not work with {', '.join(given)}.")


def evaluate_streams(arguments: Namespace, target: EvalTarget, site: Site) -> int:
    """Evaluate each set and print what was found; nothing is kept with the run."""
    from attune.api import recognizer_of
    from attune.contracts import TextTask
    from attune.display import Display, drawn
    from attune.live_scores import evaluate_stream
    from attune.stages.eval_target import open_for_evaluation
    from attune.world import World, choose_device

    world = World(0, 1, choose_device(site.device))
    recognizer = recognizer_of(target, site, world)
    if not isinstance(recognizer.loaded.task, TextTask):
        name = own_name(recognizer.recipe.task.name)
        raise ConfigError(f"--stream is for models that transcribe; this one was trained to {name}.")
    display = Display(sys.stderr if arguments.json else sys.stdout)
    done = []
    for on in arguments.on or [None]:
        with tempfile.TemporaryDirectory() as scratch:
            corpus = open_for_evaluation(target, on, Path(scratch), site, world)
            done.append(drawn(evaluate_stream(recognizer, corpus, Path(scratch), site), display))
    if arguments.json:
        found = [each.as_json() for each in done]
        print_json(found if len(found) > 1 else found[0])
    else:
        for each in done:
            display.say(_text(each))
    return 0


def _text(found: StreamEvaluation) -> str:
    from attune.report.tables import scores_table

    speed = f"RTF {found.real_time_factor:.4f} ({1 / max(found.real_time_factor, 1e-6):.0f}× real time)"
    late = [
        f"{NAMES[name]}: {median:.2f} s after its end (median), {most:.2f} s (90 %)"
        for name, (median, most) in found.delays().items()
    ]
    headline = f"{found.split}: {len(found.latencies):,} utterances, {found.kind} streams, {speed}"
    return "\n".join([headline, scores_table({found.split: found.scores}), *late])
