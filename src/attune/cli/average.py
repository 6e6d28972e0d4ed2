"""Average the weights of several checkpoints into one model."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from attune.errors import ConfigError

HELP = "average the weights of several checkpoints into one model"
EXAMPLE = "attune average runs/demo@step-180 runs/demo@step-240 --to models/mean"


def add_arguments(parser: ArgumentParser) -> None:
    """Take the checkpoints and the model folder to write."""
    parser.add_argument(
        "models", nargs="+", metavar="RUN@STEP", help="checkpoints, runs or model folders of the same architecture"
    )
    parser.add_argument("--to", type=Path, required=True, metavar="MODEL", help="model folder to write")


def run(arguments: Namespace) -> int:
    """Write the mean and print the next step."""
    from attune.publishing.publish import average_models
    from attune.site import this_site
    from attune.transfers import with_progress

    if len(arguments.models) < 2:
        raise ConfigError("Averaging needs two models or more, e.g. RUN@step-200 RUN@step-400.")
    average_models(arguments.models, arguments.to, with_progress(this_site(device="cpu")))
    print(f"{arguments.to}: the mean of {len(arguments.models)} models")
    print(f"Evaluate it: attune evaluate {arguments.to}")
    return 0
