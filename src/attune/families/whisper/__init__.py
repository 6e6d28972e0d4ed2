"""OpenAI's Whisper and models derived from it: any size, multilingual or English-only.

It has its own vocabulary, so the task only gives the text to learn, and its language. A row's own `language` has
precedence over the task's; a row's label `prompt` is the text before it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from attune.contracts import (
    Exporters,
    Family,
    ImportedCheckpoint,
    Importer,
    SpeechModel,
    Task,
    TaskModel,
    VocabularyRules,
)
from attune.families.whisper.settings import WhisperConfig

if TYPE_CHECKING:
    from attune.families.whisper.model import WhisperModel

TRIMMED = (
    "model.window=trimmed: fast on short clips, for use in attune. Other tools pad audio to 30 s and lose some "
    "accuracy with this model; for them, train with model.window=full. A wer over 100 % is normal at first."
)
FULL = (
    "model.window=full: audio is padded to 30 s, as other tools do. model.window=trimmed is several times as fast on "
    "short clips, for use in attune."
)


def build(config: WhisperConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` describe, with random weights."""
    from attune.families.whisper.build import build_whisper

    return build_whisper(config, task, assets)


def recognizes(path: Path) -> bool:
    """Whether this is a transformers folder of a Whisper, or an OpenAI file."""
    config = path / "config.json"
    return path.suffix == ".pt" or (config.is_file() and b'"whisper"' in config.read_bytes())


def read(config: WhisperConfig, path: Path, assets: Path) -> ImportedCheckpoint:
    """A transformers folder or OpenAI's .pt file."""
    from attune.families.whisper.weights import default_prompt, import_weights

    tensors = import_weights(path, assets, Path(config.tokenizer).expanduser() if config.tokenizer else None)
    prompt = default_prompt(assets)
    language = (f"task.language={prompt.language}",) if prompt.language else ()
    note = TRIMMED if config.window == "trimmed" else FULL
    return ImportedCheckpoint(tensors, (*language, f"model.speech_task={prompt.task}"), (note,))


def export(model: SpeechModel, assets: Path, folder: Path) -> None:
    """Add what transformers needs to load the folder."""
    from attune.families.whisper.weights import export_files

    export_files(cast("WhisperModel", model).rules.prompt, assets, folder)


FAMILY = Family(
    config=WhisperConfig,
    build=build,
    importer=Importer(recognizes, read),
    exporters=Exporters(beside=export),
    vocabulary=VocabularyRules(is_own=lambda config: True),
    architecture_settings=("window",),
    sources=("weights", "tokenizer"),
    takes="text",
)
