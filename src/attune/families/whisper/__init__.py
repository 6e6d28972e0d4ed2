"""OpenAI's Whisper and what was made of it: any size, multilingual or English-only.

It brings its own tokens, so the task only says what text to learn, and in which language. A row's own `language` goes
before the task's; a row's label `prompt` is what was said before it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attune.families.whisper.settings import WhisperConfig
from attune.types import Family, Task, TaskModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def build(config: WhisperConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` describe, with fresh weights."""
    from attune.families.whisper.build import build_whisper

    return build_whisper(config, task, assets)


def recognizes(path: Path) -> bool:
    """Whether this is a folder of a Whisper in transformers' format, or a file of OpenAI's."""
    config = path / "config.json"
    return path.suffix == ".pt" or (config.is_file() and b'"whisper"' in config.read_bytes())


def import_checkpoint(config: WhisperConfig, path: Path, assets: Path) -> "Mapping[str, Tensor]":
    """Weights from a folder in transformers' format or from OpenAI's .pt file."""
    from attune.families.whisper.weights import import_weights

    return import_weights(path, assets, Path(config.tokenizer).expanduser() if config.tokenizer else None)


def recommended_overrides(assets: Path) -> list[str]:
    """The checkpoint's own language and task, as settings of a recipe."""
    from attune.families.whisper.weights import told_by

    told = told_by(assets)
    language = [f"task.language={told.language}"] if told.language else []
    return [*language, f"model.speech_task={told.task}"]


def export(model: Any, assets: Path, folder: Path) -> None:
    """Add what transformers needs to load the folder."""
    from attune.families.whisper.weights import export_files

    export_files(model.rules.told, assets, folder)


__all__ = ["FAMILY", "WhisperConfig"]

FAMILY = Family(
    config=WhisperConfig,
    build=build,
    recognizes=recognizes,
    import_checkpoint=import_checkpoint,
    recommended_overrides=recommended_overrides,
    export=export,
    has_own_vocabulary=True,
    architecture_settings=("window",),
    sources=("weights", "tokenizer"),
)
