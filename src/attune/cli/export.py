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
    parser.add_argument(
        "--for-ctranslate2", action="store_true", help="write a folder for CTranslate2 and faster-whisper (Whisper)"
    )
    parser.add_argument(
        "--for-onnx", action="store_true", help="write graphs for ONNX Runtime (Whisper, transducers, CTC and more)"
    )
    parser.add_argument("--adapter", action="store_true", help="write only the LoRA adapter, in the format of peft")


def run(arguments: Namespace) -> int:
    """Export the best checkpoint, with adapters merged."""
    from attune.loading.adapter import export_adapter
    from attune.publishing.publish import export_model
    from attune.site import this_site
    from attune.transfers import with_progress

    others = arguments.for_transformers or arguments.for_ctranslate2 or arguments.for_onnx
    if arguments.adapter and (others or arguments.to.suffix == ".nemo"):
        raise ConfigError("--adapter writes a folder for peft. Remove --for-…, and give --to a folder.")
    if arguments.for_ctranslate2:
        return _export_ctranslate2(arguments)
    if arguments.for_onnx:
        return _export_onnx(arguments)
    if arguments.adapter:
        layers = export_adapter(arguments.run, arguments.to, with_progress(this_site(device="cpu")))
        print(f"exported the LoRA adapter of {layers} layers to {arguments.to}")
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


def _export_ctranslate2(arguments: Namespace) -> int:
    from attune.publishing.ctranslate2 import export_ctranslate2
    from attune.site import this_site
    from attune.transfers import with_progress

    if arguments.for_transformers or arguments.for_onnx or arguments.to.suffix == ".nemo":
        raise ConfigError(
            "--for-ctranslate2 writes a folder of its own. Remove other --for-… options; --to must be a folder."
        )
    found = export_ctranslate2(arguments.run, arguments.to, with_progress(this_site(device="cpu")))
    print(f"exported to {arguments.to}")
    print(
        f"compared in float32 on {found.samples} synthetic samples: the same tokens; encoder states differ by up to "
        f"{found.largest_difference:.1e}"
    )
    print(f"Load it: faster_whisper.WhisperModel({str(arguments.to)!r}, compute_type='int8')")
    return 0


def _export_onnx(arguments: Namespace) -> int:
    from attune.publishing.onnx import export_onnx
    from attune.site import this_site
    from attune.transfers import with_progress

    if arguments.for_transformers or arguments.to.suffix == ".nemo":
        raise ConfigError("--for-onnx writes a folder of its own. Remove --for-transformers; --to must be a folder.")
    found = export_onnx(arguments.run, arguments.to, with_progress(this_site(device="cpu")))
    print(f"exported to {arguments.to}: {', '.join(found.files)}, and model.json, which says how to run them")
    print(
        f"compared on {found.check.samples} synthetic samples: the same results; scores differ by up to "
        f"{found.check.largest_difference:.1e}"
    )
    return 0
