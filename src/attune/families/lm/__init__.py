"""Language models over a recognizer's tokens, trained or fine-tuned alone; `decode.lm` fuses them in a beam search."""

from pathlib import Path

from attune.contracts import Family, Task, TaskModel, TokenizedTask
from attune.errors import ConfigError
from attune.families.lm.settings import LmConfig as LmConfig


def build(config: LmConfig, task: Task, assets: Path) -> TaskModel:
    """A recurrent language model over the task's tokens, with random weights."""
    from attune.families.lm.build import build_lm

    if not isinstance(task, TokenizedTask):
        raise ConfigError("A language model needs a task about tokens. Set task.name=language_model.")
    return build_lm(config, task)


FAMILY = Family(config=LmConfig, build=build, architecture_settings=("size",), takes="tokens")
