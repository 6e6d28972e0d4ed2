"""Which tasks a family can learn: a pair that does not fit is refused before anything is prepared."""

from attune import catalog
from attune.contracts import Family, ModelSection, Section, TaskKind, TaskType
from attune.errors import ConfigError
from attune.recipe import Recipe

# What a task has that a family of each kind needs, and how that is called.
NEEDS: dict[TaskKind, tuple[tuple[str, ...], str]] = {
    "head": (("head",), "a task with a head"),
    "text": (("text",), "a task with text"),
    "tokens": (("text", "pieces"), "a task with text or tokens"),
    "written": (("text", "pieces"), "a task with text only"),
}


def require_fit(recipe: Recipe) -> None:
    """Refuse a family that cannot learn the recipe's task."""
    require_pair(recipe.model.family, recipe.task.name)


def require_pair(family_name: str, task_name: str) -> None:
    """Refuse a family that cannot learn a task, with the tasks and the families that would fit."""
    family, task = catalog.find(catalog.FAMILIES, family_name), catalog.find(catalog.TASKS, task_name)
    if fits(family, task):
        return
    tasks = [name for name in catalog.names(catalog.TASKS) if fits(family, catalog.find(catalog.TASKS, name))]
    families = [name for name in catalog.names(catalog.FAMILIES) if fits(catalog.find(catalog.FAMILIES, name), task)]
    raise ConfigError(
        f"The family {family_name!r} cannot learn the task {task_name!r}: it needs "
        f"{NEEDS[family.takes][1]}. Set task.name to {' or '.join(tasks)}"
        + (f", or model.family to {' or '.join(families)}." if families else ".")
    )


def fits(family: Family[ModelSection], task: TaskType[Section]) -> bool:
    """Whether the task has what the family needs."""
    if family.takes == "any":
        return True
    is_written = getattr(task, "needs_audio", True) is False
    has_it = any(getattr(task, name, None) is not None for name in NEEDS[family.takes][0])
    return has_it and is_written == (family.takes == "written")
