"""Convert a checkpoint of another toolkit into an attune model."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "convert a .nemo file or a Whisper checkpoint into an attune model"
EXAMPLE = "attune import hf://openai/whisper-tiny --to models/whisper-tiny"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a checkpoint and the model folder to write."""
    parser.add_argument(
        "checkpoint", help="path or URL of a .nemo file, a transformers Whisper folder, or OpenAI's Whisper .pt"
    )
    parser.add_argument("--to", type=Path, required=True, metavar="MODEL", help="model folder to write")
    parser.add_argument(
        "--tokenizer", metavar="PATH", help="tokenizer.json for a .pt file (default: in the same folder)"
    )


def run(arguments: Namespace) -> int:
    """Import and print the next step."""
    from attune.site import this_site
    from attune.stages.begin import import_model

    parameters = import_model(arguments.checkpoint, arguments.to, this_site(workers=0), arguments.tokenizer)
    print(f"{arguments.to}: {parameters / 1e6:.1f} M parameters")
    print(f"Try it: attune transcribe {arguments.to} AUDIO")
    return 0
