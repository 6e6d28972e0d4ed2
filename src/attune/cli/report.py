"""Write the report of one run or several as a page."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from attune.cli._terminal import add_json, at_least, print_json

HELP = "write a run's report: one HTML file with scores, curves, errors and every utterance"
EXAMPLE = "attune report runs/demo --out demo.html"


def add_arguments(parser: ArgumentParser) -> None:
    """Take runs and where to put the page."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder or s3://…; several go into one page")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write it (default: report.html in the run)")
    parser.add_argument(
        "--audio",
        type=at_least(0),
        default=50,
        metavar="N",
        help="recordings inside the page, worst first (default 50)",
    )
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Write the page and print where it is."""
    from attune.files import require_writable
    from attune.run import Run
    from attune.run_report import make_report, require_run
    from attune.run_store import locate_stored, put_file
    from attune.site import this_site
    from attune.transfers import with_progress

    site = with_progress(this_site())
    runs = [Run(locate_stored(each, site.cache, which="none") or Path(each)) for each in arguments.runs]
    for each in runs:
        require_run(each)
    out: Path = arguments.out or runs[0].folder / "report.html"
    require_writable(out, "Choose another file: --out FILE.")
    page = make_report(runs, site, out.absolute().parent, arguments.audio).save(out)
    if runs[0].address and not arguments.out:
        put_file(runs[0], out)
    where = f"{runs[0].name}/{out.name}" if runs[0].address and not arguments.out else str(out)
    if arguments.json:
        print_json({"report": where, "bytes": len(page.html.encode())})
    else:
        print(f"report: {where} ({len(page.html) / 1e6:.1f} MB)")
    return 0
