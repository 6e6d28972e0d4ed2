"""Check this machine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from attune.cli._terminal import add_json, print_json

HELP = "check this machine: versions, devices, collectives, audio formats, disk, orphaned processes"
EXAMPLE = "attune doctor --json > bug-report.json"
MARKS = {"good": "ok", "note": "note", "bad": "PROBLEM"}


def add_arguments(parser: ArgumentParser) -> None:
    """Take --end and --json."""
    parser.add_argument("--end", metavar="RUN", help="only kill the orphaned processes of this run")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the result of each check; exit 1 when there is a problem."""
    from attune.launch.doctor import end_run, examine
    from attune.site import this_site

    if arguments.end:
        ended = end_run(arguments.end)
        if arguments.json:
            print_json({"ended": ended})
        else:
            listed = ", ".join(map(str, ended))
            print(f"killed {len(ended)} processes: {listed}" if ended else f"run {arguments.end} has no processes")
        return 0
    findings = []
    for finding in examine(this_site()):
        findings.append(finding)
        if not arguments.json:
            print(f"{MARKS[finding.verdict]:8}{finding.about}: {finding.what}", flush=True)
            if finding.remedy:
                print(f"{'':8}{finding.remedy}", flush=True)
    if arguments.json:
        print_json([asdict(finding) for finding in findings])
    return 1 if any(finding.verdict == "bad" for finding in findings) else 0
