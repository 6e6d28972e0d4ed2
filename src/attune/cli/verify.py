"""Prove on your own model and data that batch size, ranks and kills change no result."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path

from attune.cli._ranks import add_device
from attune.cli._terminal import add_json, print_json, run_folder

HELP = "prove that batch size, ranks and kill -9 do not change the results of a run"
EXAMPLE = "attune verify runs/demo --on dev"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a run, the split to decode, and the device."""
    parser.add_argument("run", help="run with a checkpoint, s3://… too")
    parser.add_argument("--on", choices=("train", "dev", "test"), default="dev", help="split to decode (default dev)")
    add_device(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the result of each check; exit 1 when one fails."""
    import tempfile

    from attune.run import Run
    from attune.stages.verify import verify

    folder = run_folder(arguments.run, which="best")
    findings, ranks = [], _ranks(arguments.device)
    if ranks == 1:
        print("Only 1 GPU: ranks are not compared. Use --device cpu to compare them.", file=sys.stderr)
    options = ["--device", arguments.device]
    if arguments.workers is not None:
        options += ["--workers", str(arguments.workers)]
    with tempfile.TemporaryDirectory() as scratch:
        for finding in verify(Run(folder), arguments.on, Path(scratch), ranks, options):
            findings.append(finding)
            if not arguments.json:
                mark = "holds" if finding.holds else "DOES NOT HOLD"
                print(
                    f"{mark}: {finding.promise} ({finding.compared} {finding.largest_difference:.1e} apart)", flush=True
                )
    if arguments.json:
        print_json([asdict(finding) for finding in findings])
    return 0 if all(finding.holds for finding in findings) else 1


def _ranks(device: str) -> int:
    """Two, which a machine with one GPU cannot have."""
    from attune.launch.group import device_count

    return 1 if device != "cpu" and device_count() == 1 else 2
