"""Export a run's model as a folder, as a .nemo file, or its LoRA adapter alone."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from attune.errors import ConfigError

HELP = "export a run's model as a model folder, for transformers, as a .nemo file, or its LoRA adapter for peft"
EXAMPLE = "attune export runs/demo --to models/demo"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a run and where to write its model."""
    parser.add_argument("run", help="run, RUN@best|last|step-N, model folder, or URL of one")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR|FILE.nemo", help="folder or .nemo file to write")
    parser.add_argument(
        "--for-transformers",
        action="store_true",
        help="write a transformers checkpoint, e.g. FastConformer as Parakeet (a Whisper folder already is one)",
    )
    parser.add_argument("--adapter", action="store_true", help="write the LoRA adapter alone, as peft loads it")


def run(arguments: Namespace) -> int:
    """Export the best checkpoint, with adapters merged."""
    from attune.cli._downloads import with_progress
    from attune.site import this_site
    from attune.stages.adapter import export_adapter
    from attune.stages.publish import export_model

    if arguments.adapter and (arguments.for_transformers or arguments.to.suffix == ".nemo"):
        raise ConfigError("--adapter writes a folder for peft. Leave --for-transformers out, and give --to a folder.")
    if arguments.adapter:
        layers = export_adapter(arguments.run, arguments.to, with_progress(this_site(device="cpu")))
        print(f"exported the additions to {layers} layers to {arguments.to}")
        print(f"Load it: peft.PeftModel.from_pretrained(base, {str(arguments.to)!r}), or attune import {arguments.to}")
        return 0
    export_model(arguments.run, arguments.to, with_progress(this_site(device="cpu")), arguments.for_transformers)
    is_native = arguments.to.is_dir() and not arguments.for_transformers
    print(f"exported to {arguments.to}")
    if is_native:
        print(f"Evaluate it: attune evaluate {arguments.to}")
    if is_native and (arguments.to / "README.md").is_file():
        print(f"Its model card, as `attune push` writes it: {arguments.to / 'README.md'}")
    return 0
