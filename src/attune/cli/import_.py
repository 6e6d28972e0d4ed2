"""Convert a checkpoint of another toolkit, or a LoRA adapter with its base, into an attune model."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attune.loading.begin import ImportedModel

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
    from attune.loading.begin import ImportRequest, import_model
    from attune.loading.recognition import companions
    from attune.site import this_site
    from attune.transfers import with_progress

    site, source, to = with_progress(this_site(workers=0)), arguments.checkpoint, arguments.to
    imported = import_model(ImportRequest(source, to, arguments.tokenizer, arguments.base), site)
    _print_size(to, imported)
    if imported.search.left_out:
        print(f"Not imported: {', '.join(imported.search.left_out)}. Hypotheses may differ from those it had.")
    if imported.family == "lm":
        print(f"Try it: attune evaluate RECOGNIZER --on MANIFEST decode.search=beam decode.lm={to}")
        return 0
    others = companions(source, site)
    for family in others:
        _print_size(to / family, import_model(ImportRequest(source, to / family, family=family), site))
    print(f"Try it: attune transcribe {to} AUDIO")
    if "lm" in others:
        fused = (f"decode.lm={to / 'lm'}", *imported.search.fusion)
        print(f"With its language model: attune evaluate {to} --on MANIFEST {' '.join(fused)}")
    return 0


def _print_size(folder: Path, imported: ImportedModel) -> None:
    print(f"{folder}: {imported.parameters / 1e6:.1f} M parameters")
