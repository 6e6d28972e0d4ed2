"""Convert a checkpoint of another toolkit, or a LoRA adapter with its base, into an attune model."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "convert a .nemo file, a Whisper or SpeechBrain checkpoint or a LoRA adapter into an attune model"
EXAMPLE = "attune import hf://openai/whisper-tiny --to models/whisper-tiny"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a checkpoint and the model folder to write."""
    parser.add_argument(
        "checkpoint",
        help="path or URL of a .nemo file, a transformers Whisper folder, OpenAI's Whisper .pt, a SpeechBrain "
        "folder, or a peft adapter",
    )
    parser.add_argument("--to", type=Path, required=True, metavar="MODEL", help="model folder to write")
    parser.add_argument(
        "--tokenizer", metavar="PATH", help="tokenizer.json for a .pt file (default: in the same folder)"
    )
    parser.add_argument("--base", metavar="MODEL", help="model that an adapter is for (default: the one it names)")


def run(arguments: Namespace) -> int:
    """Import and print the next step."""
    from attune.loading.begin import ImportRequest, companions, import_model
    from attune.site import this_site
    from attune.transfers import with_progress

    site, source, to = with_progress(this_site(workers=0)), arguments.checkpoint, arguments.to
    _print_size(to, import_model(ImportRequest(source, to, arguments.tokenizer, arguments.base), site))
    others = companions(source, site)
    for family in others:
        _print_size(to / family, import_model(ImportRequest(source, to / family, family=family), site))
    print(f"Try it: attune transcribe {to} AUDIO")
    if "lm" in others:
        print(f"With its language model: attune evaluate {to} --on MANIFEST decode.lm={to / 'lm'}")
    return 0


def _print_size(folder: Path, parameters: int) -> None:
    print(f"{folder}: {parameters / 1e6:.1f} M parameters")
