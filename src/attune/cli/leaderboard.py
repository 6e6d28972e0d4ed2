"""Evaluate a model on many sets and score it as the Open ASR Leaderboard does."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attune.cli._terminal import add_json, at_least, print_json
from attune.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from attune.analysis.leaderboard import EvalSet, LeaderboardLine, LeaderboardResult, Transcribe
    from attune.display import Display
    from attune.site import Site

HELP = "evaluate many sets at once: WER, the Open ASR Leaderboard's WER, RTFx"
EXAMPLE = "attune leaderboard runs/mine --sets ami=ami/test.jsonl earnings22/test.jsonl --to board"

PIPELINE, PREDICTIONS = "pipeline:", "predictions:"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a system, the sets, and where to write."""
    parser.add_argument(
        "model",
        help="run, model folder or URL; pipeline:FOLDER_OR_HUB_NAME for a transformers pipeline; predictions:FOLDER "
        "with a SET.jsonl for each set, as the leaderboard or attune writes them",
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        required=True,
        metavar="[NAME=]MANIFEST",
        help="manifests or HF datasets; of predictions: names",
    )
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="write SET.jsonl, predictions, board.json and board.md"
    )
    parser.add_argument("--normalizer", default="english", metavar="NAME", help="default: english")
    parser.add_argument("--name", help="name of the system in the table (default: the model's name)")
    parser.add_argument("--batch", type=at_least(1), default=16, metavar="N", help="clips at once (default 16)")
    parser.add_argument("--language", metavar="CODE", help="language of the audio, e.g. en (multilingual models)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="device type (default auto)")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Decode the sets that the folder does not have yet, and score all of them."""
    from attune import catalog
    from attune.analysis.leaderboard import CLOCK, OTHERS_CLOCK, EvalSet, LeaderboardResult, score_set
    from attune.display import Display
    from attune.files import write_text

    normalize = catalog.find(catalog.NORMALIZERS, arguments.normalizer)
    sets = [EvalSet.of(each) for each in arguments.sets]
    if len({each.name for each in sets}) < len(sets):
        raise ConfigError("--sets: two sets have the same name. Use NAME=MANIFEST.")
    system = arguments.name or _name(arguments.model)
    if arguments.to and not arguments.model.startswith(PREDICTIONS):
        _require_own(arguments.to, system)
    display = Display(sys.stderr)
    lines = _lines(arguments, sets, display)
    results = tuple(score_set(one.name, own, normalize) for one, own in zip(sets, lines, strict=True))
    clock = OTHERS_CLOCK if arguments.model.startswith(PREDICTIONS) else CLOCK
    board = LeaderboardResult(system, arguments.normalizer, results, clock)
    if arguments.to:
        import json

        write_text(arguments.to / "board.json", json.dumps(board.as_json(), indent=2, ensure_ascii=False) + "\n")
        write_text(arguments.to / "board.md", board.markdown())
    if arguments.json:
        print_json(board.as_json())
    else:
        _print_board(board)
    return 0


def _name(model: str) -> str:
    source = model.removeprefix(PIPELINE).removeprefix(PREDICTIONS)
    return Path(source).absolute().name  # also of `.`


def _require_own(folder: Path, system: str) -> None:
    """Refuse the folder of another system, whose sets would be taken for those of this one."""
    import json

    try:
        other = json.loads((folder / "board.json").read_text(encoding="utf-8"))["system"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if other != system:
        raise ConfigError(f"--to {folder} has the results of {other}. Name another folder, or --name {other}.")


def _lines(arguments: Namespace, sets: Sequence[EvalSet], display: Display) -> list[list[LeaderboardLine]]:
    from attune.analysis.leaderboard import read_lines
    from attune.site import this_site
    from attune.transfers import with_progress

    if arguments.model.startswith(PREDICTIONS):
        folder = Path(arguments.model.removeprefix(PREDICTIONS))
        return [read_lines(folder / f"{one.name}.jsonl") for one in sets]
    site = with_progress(this_site(device=arguments.device))
    done = {one.name: read_lines(path) for one in sets if (path := _file(arguments.to, one)) and path.is_file()}
    missing = [one for one in sets if one.name not in done]
    if missing:
        transcribe = _pipeline(arguments) if arguments.model.startswith(PIPELINE) else _model(arguments)
        for one in missing:
            done[one.name] = _decode(arguments, one, transcribe, display, site)
    return [done[one.name] for one in sets]


def _file(folder: Path | None, one: EvalSet) -> Path | None:
    return folder / f"{one.name}.jsonl" if folder else None


def _decode(
    arguments: Namespace, one: EvalSet, transcribe: Transcribe, display: Display, site: Site
) -> list[LeaderboardLine]:
    from attune.analysis.leaderboard import decode_set, write_set
    from attune.stages import drain
    from attune.world import choose_device

    stage = decode_set(one, transcribe, arguments.batch, choose_device(arguments.device), site)
    lines = drain(stage, lambda event: display.progress(event.name, event.done, event.total, "clip"))
    if arguments.to:
        write_set(arguments.to, one.name, lines)
    return lines


def _model(arguments: Namespace) -> Transcribe:
    from attune.api import load

    recognizer = load(arguments.model, arguments.device, language=arguments.language)

    def transcribe(recordings: Sequence[object]) -> list[str]:
        return list(recognizer.transcribe(list(recordings)))  # type: ignore[arg-type]

    return transcribe


def open_pipeline(name: str, device: torch.device) -> Any:
    """A transformers pipeline; on a CPU in float32, as half precision is slow there."""
    import torch
    import transformers

    if name.startswith(("/", ".", "~")) and not Path(name).is_dir():
        raise ConfigError(f"pipeline:{name}: no such folder. Give one that transformers wrote, or a name on the Hub.")
    try:
        peer = transformers.pipeline(
            "automatic-speech-recognition",
            model=name,
            device=device,
            trust_remote_code=False,
            dtype=torch.float32 if device.type == "cpu" else "auto",
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"transformers cannot make a pipeline of {name}: {error}") from error
    if peer.tokenizer is not None and peer.tokenizer.pad_token_id is None:  # a batch needs one
        peer.tokenizer.pad_token_id = peer.model.config.eos_token_id
    return peer


def _pipeline(arguments: Namespace) -> Transcribe:
    """A transformers pipeline as a peer, under the same clock."""
    from attune.types import SAMPLE_RATE
    from attune.world import choose_device

    peer = open_pipeline(arguments.model.removeprefix(PIPELINE), choose_device(arguments.device))
    asked = {"generate_kwargs": {"language": arguments.language}} if arguments.language else {}

    def transcribe(recordings: Sequence[object]) -> list[str]:
        inputs = [{"raw": samples, "sampling_rate": SAMPLE_RATE} for samples in recordings]
        found = peer(inputs, batch_size=arguments.batch, **asked)
        return [str(each["text"]) for each in found]

    return transcribe


def _print_board(board: LeaderboardResult) -> None:
    head = ("set", "clips", f"WER, {board.normalizer}", "WER, compounds merged", "RTFx")
    rows = [head, *board.table()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"\nclock: {board.clock}\n")
    print(board.markdown(), end="")
