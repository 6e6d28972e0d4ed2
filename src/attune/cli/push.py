"""Upload a run's model to the Hub or to S3."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "upload a model with its recipe, scores, log and card to the Hugging Face Hub, S3 or a folder; or a whole run"
EXAMPLE = "attune push runs/demo hf://my-team/demo"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a run and the URL to upload to."""
    parser.add_argument("run", help="run or model folder")
    parser.add_argument("to", metavar="URL", help="hf://ORG/NAME, s3://BUCKET/PREFIX/ or a new folder")
    parser.add_argument("--run", dest="whole", action="store_true", help="the whole run, to continue it at s3://…")


def run(arguments: Namespace) -> int:
    """Upload everything in one commit."""
    from attune.cli._ranks import report_wait
    from attune.publishing.publish import push_model, push_run
    from attune.run import Run
    from attune.site import this_site
    from attune.sources import is_remote
    from attune.transfers import with_progress

    site = with_progress(this_site(device="cpu"))
    if arguments.whole:
        print(f"pushed to {push_run(arguments.run, arguments.to, site, report_wait)}")
        print(f"Continue it: attune train {arguments.to}")
        return 0
    url = push_model(arguments.run, arguments.to, site)
    print(f"pushed to {url}")
    if is_remote(arguments.to):
        print(f"Load it: attune pull {arguments.to} --to DIR, or model.weights={arguments.to} in a recipe")
    else:
        print(f"Look at its card: {arguments.to}/README.md")
    folder = Path(arguments.run)
    if Run(folder).checkpoints.is_dir() and not (folder / "scores.json").is_file():
        print(f"The model card has no scores. Run `attune evaluate {arguments.run} --on dev`, and push again.")
    return 0
