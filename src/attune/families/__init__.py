"""Kinds of pretrained models, one folder each, exporting FAMILY."""

from attune import catalog
from attune.contracts import ModelSection, TextTask


def refuse_pair(task: str, family: str, config: ModelSection) -> str | None:
    """Why a family cannot learn a task, and what can; None where nothing speaks against it."""
    learns_text = catalog.find(catalog.FAMILIES, family).vocabulary.is_own(config)
    # Of a class, this asks what its instances have.
    if not learns_text or isinstance(catalog.find(catalog.TASKS, task), TextTask):
        return None
    return (
        f"{family.capitalize()} cannot {task}: it learns text, and this task has none. Use model.family=ssl, which "
        "puts a head on an encoder (attune list upstreams), or task.name=transcribe"
    )
