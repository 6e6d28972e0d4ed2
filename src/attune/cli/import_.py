"""Make a model folder of somebody else's checkpoint."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "make a model folder of a .nemo file, or of a Whisper of others"
EXAMPLE = "attune import hf://openai/whisper-tiny --to models/whisper-tiny"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a checkpoint and the folder to make."""
    parser.add_argument(
        "checkpoint", help="a .nemo file, a Whisper in transformers' format or OpenAI's .pt; a path or an address"
    )
    parser.add_argument("--to", type=Path, required=True, metavar="MODEL", help="the model folder to make")
    parser.add_argument(
        "--tokenizer", metavar="PATH", help="the tokenizer.json of a .pt file, if it does not lie beside it"
    )


def run(arguments: Namespace) -> int:
    """Say what was imported, and what to do with it."""
    from attune.site import this_site
    from attune.stages.begin import import_model

    parameters = import_model(arguments.checkpoint, arguments.to, this_site(workers=0), arguments.tokenizer)
    print(f"{arguments.to}: {parameters / 1e6:.1f} M parameters. Try it: attune transcribe {arguments.to} AUDIO")
    return 0
