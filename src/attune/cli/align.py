"""Find when each word of a transcript is in its recording, and cut long recordings into training rows."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, between, print_json
from attune.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attune.analysis.align import AlignedRow
    from attune.recognizer import Recognizer
    from attune.site import Site

HELP = "align transcripts with their audio: word times, and training rows from long recordings"
EXAMPLE = "attune align runs/demo lectures.jsonl --to aligned --cut 20"

SECONDS = between(0.1, 3600, " seconds")
FORMATS = (".json", ".jsonl", ".ctm", ".srt", ".vtt", ".ass", ".textgrid")


def add_arguments(parser: ArgumentParser) -> None:
    """Take a model, a manifest, and what to write."""
    parser.add_argument("model", help="run, model folder, or URL of one: CTC, transducer or Whisper")
    parser.add_argument("manifest", help="manifest (.jsonl, .csv, .tsv) whose rows have audio and text, of any length")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER|FILE",
        help="folder for alignments.jsonl and one file per row, continued where it was cut off; or one file, "
        ".json, .jsonl, .ctm, .TextGrid, .srt, .vtt or .ass by its suffix (default: CTM on stdout)",
    )
    parser.add_argument("--format", metavar="FORMAT", help="with --to FOLDER: TextGrid, ctm, ass, srt or vtt per row")
    parser.add_argument(
        "--cut",
        type=SECONDS,
        metavar="SECONDS",
        help="with --to FOLDER: cut at pauses into rows.jsonl, rows this long at most",
    )
    parser.add_argument(
        "--pause",
        type=SECONDS,
        default=2.0,
        metavar="SECONDS",
        help="with --cut: end a row at every pause longer than this, for rows of about a sentence (default 2)",
    )
    parser.add_argument(
        "--min-confidence",
        type=between(0, 1),
        default=0.05,
        metavar="P",
        help="with --cut: drop rows whose words have a lower mean probability (default 0.05)",
    )
    parser.add_argument("--language", metavar="CODE", help="language of the audio, e.g. be (multilingual models)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="device type (default auto)")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Align all rows; exit 2 when one could not be read."""
    from attune.api import load
    from attune.report.formats import require_format
    from attune.site import this_site
    from attune.transfers import with_progress

    to: Path | None = arguments.to
    is_file = to is not None and to.suffix != "" and not to.is_dir()
    if (arguments.format or arguments.cut) and (to is None or is_file):
        raise ConfigError("--format and --cut need --to FOLDER.")
    suffix = require_format(to, FORMATS) if to and is_file else None
    per_row = require_format(Path(f"x.{arguments.format.lstrip('.')}"), FORMATS[2:]) if arguments.format else None
    site = with_progress(this_site(device=arguments.device))
    recognizer = load(arguments.model, arguments.device, language=arguments.language)
    if to and not is_file:
        return _to_folder(arguments, recognizer, to, per_row, site)
    return _to_file(arguments, recognizer, to, suffix or ".ctm", site)


def _to_folder(arguments: Namespace, recognizer: Recognizer, folder: Path, suffix: str | None, site: Site) -> int:
    from attune.analysis.align import ALIGNMENTS, ROWS, CutRules, align_to_folder, cut_rows, require_own_folder
    from attune.display import Display
    from attune.stages import drain
    from attune.styles import duration

    require_own_folder(folder, arguments.model)
    display = Display(sys.stderr)
    stage = align_to_folder(arguments.manifest, recognizer.align_all, folder, suffix, site)
    problems = drain(stage, lambda event: display.progress("aligning", event.done, event.total, "row"))
    for problem in problems:
        print(problem, file=sys.stderr)
    rules = CutRules(arguments.cut, arguments.pause, arguments.min_confidence) if arguments.cut else None
    summary = cut_rows(arguments.manifest, folder, rules, site) if rules else None
    if arguments.json:
        from dataclasses import asdict

        print_json({"folder": str(folder), "problems": problems, "cut": asdict(summary) if summary else None})
        return 2 if problems else 0
    print(f"{folder / ALIGNMENTS}")
    if summary:
        kept, total = duration(summary.seconds), duration(summary.total_seconds)
        print(f"{folder / ROWS}: {summary.rows:,} rows, {kept} of {total}")
        for reason, count in summary.dropped.items():
            print(f"  dropped {count:,}: {reason}")
    return 2 if problems else 0


def _to_file(arguments: Namespace, recognizer: Recognizer, to: Path | None, suffix: str, site: Site) -> int:
    from attune.analysis.align import align_rows, read_rows

    read = read_rows(arguments.manifest, site)
    rows = read.rows
    if suffix not in (".json", ".jsonl", ".ctm") and len(rows) > 1:
        raise ConfigError(
            f"--to {to}: {suffix} is one file per row, and there are {len(rows)}. Use --to FOLDER --format "
            f"{suffix[1:]}."
        )
    done = list(align_rows(rows, recognizer.align_all))
    problems = [*read.problems, *(row.complaint for row in done if row.complaint)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if to:
        _write(to, suffix, done)
    elif arguments.json:
        print_json([row.as_json() for row in done])
    else:
        print(_text(".ctm", done), end="")
    return 2 if problems else 0


def _write(to: Path, suffix: str, done: Sequence[AlignedRow]) -> None:
    from attune.files import explain_write_errors, write_text

    with explain_write_errors(to, "Name another file."):
        write_text(to, _text(suffix, done))


def _text(suffix: str, done: Sequence[AlignedRow]) -> str:
    from attune.report.formats import table_text
    from attune.report.timed import TIMED, timed_text

    if suffix in TIMED:
        return "".join(timed_text(suffix, row.timed()) for row in done if row.alignment)
    return table_text(suffix, [row.as_json() for row in done], (), "id")
