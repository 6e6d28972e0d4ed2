"""Language models over a recognizer's tokens, trained or fine-tuned alone; `decode.lm` fuses them in a beam search."""

from collections.abc import Mapping
from pathlib import Path

from attune.contracts import Family, ImportedCheckpoint, Importer, Task, TaskModel, TokenizedTask, VocabularyRules
from attune.errors import ConfigError
from attune.families.lm.settings import LmConfig as LmConfig


def build(config: LmConfig, task: Task, assets: Path) -> TaskModel:
    """A language model over the task's tokens, with random weights."""
    from attune.families.lm.build import build_lm, build_own

    if config.tokens == "own":
        return build_own(config, task, assets)
    if not isinstance(task, TokenizedTask):
        raise ConfigError("The family lm needs task.name=language_model.")
    return build_lm(config, task)


def recognizes(path: Path) -> bool:
    """A folder of SpeechBrain's with a language model."""
    if not (path / "hyperparams.yaml").is_file():
        return False
    from attune.families._speechbrain import has_lm

    return has_lm(path)


def read(config: LmConfig, path: Path, assets: Path) -> ImportedCheckpoint:
    """SpeechBrain's language model, recurrent or a Transformer."""
    from attune.families.lm.speechbrain import import_lm

    return import_lm(path, assets)


def remote_parts(path: Path) -> Mapping[str, str]:
    """What its pretrainer loads from elsewhere."""
    from attune.families._speechbrain import remote_parts as parts

    return parts(path)


FAMILY = Family(
    config=LmConfig,
    build=build,
    importer=Importer(recognizes, read, remote_parts, ("task.name=language_model", "model.tokens=own")),
    vocabulary=VocabularyRules(is_own=lambda config: config.tokens == "own"),
    architecture_settings=("kind", "size", "tokens"),
    takes="written",
)
