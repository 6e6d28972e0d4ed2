"""Make a recipe from data and a model."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, print_json
from attune.errors import ConfigError
from attune.styles import duration

if TYPE_CHECKING:
    from attune.stages.new import Drafted, NewRequest

HELP = "make a recipe from data (CSV, folder, manifest, HF dataset …) and a model"
EXAMPLE = "attune new clips.csv --model hf://openai/whisper-small --language be"


def add_arguments(parser: ArgumentParser) -> None:
    """Take data, a model, and what the recipe cannot find out."""
    parser.add_argument("data", help="manifest, CSV, folder, archive, HF dataset, or URL of one")
    parser.add_argument(
        "options", nargs="*", default=[], metavar="key=value", help="options of the data, e.g. text=sentence"
    )
    add_model(parser)
    parser.add_argument("--task", metavar="NAME", help="what to learn (default: transcribe), see `attune list tasks`")
    parser.add_argument("--label", metavar="NAME", help="for --task classify: the column with the class")
    parser.add_argument("--run", metavar="FOLDER", help="run folder (default: runs/DATA-MODEL)")
    parser.add_argument("--to", type=Path, metavar="FILE", help="recipe to write (default: DATA-MODEL.yaml)")
    add_json(parser)


def add_model(parser: ArgumentParser) -> None:
    """Take --model and --language."""
    parser.add_argument(
        "--model", metavar="MODEL", help="model to start from, e.g. hf://openai/whisper-small, a folder or a .nemo file"
    )
    parser.add_argument("--language", metavar="CODE", help="language of the speech, e.g. be (multilingual models)")


def run(arguments: Namespace) -> int:
    """Write the recipe, and print what it trains on and the next step."""
    from attune.stages.new import NewRequest

    model = arguments.model or _ask("Model to start from", "hf://openai/whisper-small")
    if model is None:
        raise ConfigError("--model is missing. Name the model to start from, e.g. --model hf://openai/whisper-small.")
    language = arguments.language
    if language is None and arguments.model is None:
        language = _ask("Language of the speech (a code such as en, empty if the model knows one only)", "")
    request = NewRequest(
        arguments.data,
        model,
        arguments.to,
        arguments.run,
        arguments.task,
        language or None,
        arguments.label,
        arguments.options,
    )
    drafted = draft(request)
    if arguments.json:
        splits = {name: {"manifest": str(s.manifest), "rows": s.rows} for name, s in drafted.splits.items()}
        print_json({"recipe": str(drafted.path), "splits": splits, "was_there": drafted.was_there})
    else:
        print(f"Train it: attune train {drafted.path}")
    return 0


def draft(request: NewRequest) -> Drafted:
    """Make the recipe, and print to standard error how the data was understood and what is in it."""
    from attune.display import Display, show_preparing
    from attune.site import this_site
    from attune.stages import drain
    from attune.stages.new import draft_recipe
    from attune.transfers import with_progress

    display = Display(sys.stderr)
    drafted = drain(draft_recipe(request, with_progress(this_site())), show_preparing(display))
    display.close()
    for name, split in drafted.splits.items():
        print(f"{name}: {split.rows:,} utterances, {duration(3600 * split.hours)}", file=sys.stderr)
    kept = "already exists, used unchanged" if drafted.was_there else "written (for a quick try: train.epochs=2)"
    print(f"recipe: {drafted.path} {kept}", file=sys.stderr)
    return drafted


def _ask(question: str, default: str) -> str | None:
    """The answer at a terminal; None where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{question}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or default
