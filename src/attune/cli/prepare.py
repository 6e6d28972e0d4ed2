"""Write the manifests of a published corpus."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attune.cli._terminal import add_json, at_least, print_json
from attune.styles import duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attune.corpora import Prepared

HELP = "write manifests of a corpus (CSV, folder, HF dataset, Common Voice, Kaldi, archive, URL …)"
EXAMPLE = "attune prepare common_voice --from cv-corpus-17.0/be --to manifests/be letters=keep"


def add_arguments(parser: ArgumentParser) -> None:
    """Take the corpus, its source, and the folder of the manifests."""
    parser.add_argument(
        "corpus", help="a name of `attune list corpora`, or auto; `attune prepare NAME --help` lists its options"
    )
    parser.add_argument(
        "options", nargs="*", default=[], metavar="key=value", help="options of the corpus, e.g. letters=keep"
    )
    parser.add_argument("--from", dest="source", required=True, metavar="SOURCE", help="folder, file, archive or URL")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="folder of the manifests to write")
    parser.add_argument("--jobs", type=at_least(1), metavar="N", help="worker processes (default: cores)")
    parser.add_argument("--force", action="store_true", help="write the manifests again, also with other options")
    add_json(parser)


def more_help(words: Sequence[str]) -> str:
    """The options of the corpus that the command line names."""
    from attune import catalog, config
    from attune.corpora import CORPORA

    name = words[0] if words else ""
    if name.startswith("-") or name == "auto":
        return "Options depend on the corpus: attune prepare NAME --help"
    schemas, _ = config.json_schemas({"options": catalog.find(CORPORA, name).options})
    options = schemas["options"].get("properties", {})
    width = max(map(len, options), default=0)
    lines = [f"  {key:{width}}  {_meaning(each)}" for key, each in options.items()]
    return "\n".join([f"options of {name} (key=value):", *(lines or ["  none"])])


def _meaning(option: Mapping[str, Any]) -> str:
    default = option.get("default")
    written = json.dumps(default, ensure_ascii=False).replace('"', "")
    return f"{option.get('description', '')}{'' if default is None else f' (default: {written})'}".strip()


def run(arguments: Namespace) -> int:
    """Write the manifests and print what they have and what was skipped."""
    from attune.display import Display, show_preparing
    from attune.processes import cores
    from attune.site import this_site
    from attune.stages import drain
    from attune.stages.prepare import PrepareRequest, prepare_corpus
    from attune.transfers import with_progress

    display, site = Display(sys.stderr), with_progress(this_site())
    order = PrepareRequest(arguments.corpus, arguments.source, arguments.to, arguments.options, arguments.force)
    prepared = drain(prepare_corpus(order, arguments.jobs or cores(), site), show_preparing(display))
    display.close()
    if arguments.json:
        print_json([_as_json(split) for split in prepared])
    else:
        print("\n".join(_lines(prepared)))
    if any(split.rows for split in prepared):
        return 0
    print(
        f"{arguments.source} has no row that can be used. Fix what was skipped, or name the corpus, see "
        "`attune list corpora`.",
        file=sys.stderr,
    )
    return 2


def _as_json(split: Prepared) -> dict[str, object]:
    return {
        "split": split.split,
        "manifest": str(split.manifest),
        "rows": split.rows,
        "hours": round(split.seconds / 3600, 4),
        "left_out": dict(split.left_out),
        "was_there": split.was_there,
    }


def _lines(prepared: Iterable[Prepared]) -> list[str]:
    lines = []
    for split in prepared:
        kept = ", already prepared" if split.was_there else ""
        lines.append(f"{split.manifest}: {split.rows:,} utterances, {duration(split.seconds)}{kept}")
        lines += [f"  {line}" for line in split.describe_skipped()]
    return lines
