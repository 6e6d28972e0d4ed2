"""What a run begins with: the task's and the family's files, and the weights it starts from.

`model.weights` may name a run or a model of attune's own, or any checkpoint that the family can adopt.
"""

import filecmp
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from attune import catalog
from attune.errors import ConfigError, ModelError
from attune.recipe import Recipe
from attune.site import Site
from attune.sources import locate
from attune.stages.assemble import LoadedModel, Pretrained, is_native, open_pretrained, start_from
from attune.types import Family, RemappedWeights, Utterance

TOKENS_OF_A_TASK = ("tokenizer", "vocabulary")  # the settings that say which


@dataclass(frozen=True, slots=True)
class PretrainedSource:
    """Where a recipe's weights come from: attune's own format, a checkpoint of others, or nowhere."""

    native: Pretrained | None = None
    external: Path | None = None


@dataclass(frozen=True, slots=True)
class InitReport:
    """What a model begins with: the tensors that are new, wholly or in part, and what there is to say about it."""

    new_tensors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def open_pretrained_source(recipe: Recipe, site: Site) -> PretrainedSource:
    """What `model.weights` names; nothing is read yet."""
    source: str | None = recipe.model.config.weights
    if source is None:
        return PretrainedSource()
    path = locate(source, site.cache)
    if is_native(path):
        return PretrainedSource(native=open_pretrained(path))
    if catalog.find("families", recipe.model.family).import_checkpoint is None:
        raise ModelError(f"{path} is not a model of attune's, and the family {recipe.model.family!r} adopts no others.")
    return PretrainedSource(external=path)


def with_local_files(recipe: Recipe, site: Site) -> Recipe:
    """The recipe with the files that its model needs beside the weights where they are on this machine."""
    family: Family = catalog.find("families", recipe.model.family)
    config = recipe.model.config
    named = {name: getattr(config, name) for name in family.sources if name != "weights"}
    local = {name: str(locate(source, site.cache)) for name, source in named.items() if source is not None}
    return replace(recipe, model=replace(recipe.model, config=replace(config, **local)))


def prepare(
    recipe: Recipe, origin: PretrainedSource, utterances: Iterable[Utterance], task: Path, assets: Path
) -> None:
    """Fill the two folders that a model is built from; each is complete as soon as it is there.

    What an earlier attempt left is replaced: the utterances, or the model it began from, may have been others.
    """
    _fill(task, lambda folder: _prepare_task(recipe, origin, utterances, folder))
    _fill(assets, lambda folder: _collect_assets(recipe, origin, folder))


def load_pretrained_weights(assembled: LoadedModel, recipe: Recipe, origin: PretrainedSource, task: Path) -> InitReport:
    """Put the weights of the origin into a new model."""
    family: Family = catalog.find("families", recipe.model.family)
    model, own = assembled.built.model, origin.native
    if own:
        tensors: Mapping[str, Tensor] = own.tensors()
        if family.remap_vocabulary and own.recipe.model.family == recipe.model.family:
            return _respelled(model, family.remap_vocabulary(model, tensors, own.task, own.assets), own.weights)
        return InitReport(tuple(start_from(model, tensors, own.weights, _same_files(task, own.task))))
    if origin.external:
        with tempfile.TemporaryDirectory() as scratch:
            tensors = _adopt(recipe, origin.external, Path(scratch))
            if family.remap_vocabulary:
                nothing = Path(scratch) / "task"  # others' weights come without a task
                return _respelled(
                    model, family.remap_vocabulary(model, tensors, nothing, Path(scratch)), origin.external
                )
        return InitReport(tuple(start_from(model, tensors, origin.external, same_vocabulary=True)))
    return InitReport()


def _respelled(model: nn.Module, respelled: RemappedWeights, path: Path) -> InitReport:
    missing = start_from(model, respelled.tensors, path, same_vocabulary=True)
    notes = (respelled.note,) if respelled.note else ()
    return InitReport(tuple(sorted({*missing, *respelled.renewed})), notes)


def _prepare_task(recipe: Recipe, origin: PretrainedSource, utterances: Iterable[Utterance], folder: Path) -> None:
    """Take over the vocabulary of the pretrained model where it will do; otherwise learn one."""
    family: Family = catalog.find("families", recipe.model.family)
    if family.brings_vocabulary(recipe.model.config):
        _require_own_tokens(family, recipe, origin)
        return
    task, own = catalog.find("tasks", recipe.task.name), origin.native
    if recipe.data.bad_rows == "drop":
        utterances = _Usable(utterances, lambda utterance: task.missing_field(recipe.task.config, utterance) is None)
    if own and own.recipe.task.name == recipe.task.name and task.can_reuse(recipe.task.config, own.task, utterances):
        shutil.copytree(own.task, folder, dirs_exist_ok=True)
    else:
        task.prepare(recipe.task.config, utterances, folder)


def _require_own_tokens(family: Family, recipe: Recipe, origin: PretrainedSource) -> None:
    """Refuse weights that were trained with a task's tokens, and tokens of the task that would not be learned.

    Weights of a task's tokens may still have others in their assets: those of an ancestor.
    """
    own, task = origin.native, recipe.task.config
    if own and own.recipe.model.family == recipe.model.family and not family.brings_vocabulary(own.recipe.model.config):
        raise ConfigError(
            "These weights have no tokens of their own: they were trained with their task's. Set model.tokens=task."
        )
    unused = [name for name in TOKENS_OF_A_TASK if getattr(task, name, None) is not None]
    if unused:
        instead = ", or set model.tokens=task" if callable(family.has_own_vocabulary) else ""
        raise ConfigError(
            f"The model learns text in its own tokens: task.{unused[0]} ({getattr(task, unused[0])}) is not used. "
            f"Leave it and task.tokens out{instead}."
        )


@dataclass(frozen=True, slots=True)
class _Usable(Iterable[Utterance]):
    """The utterances that pass, each time anew."""

    utterances: Iterable[Utterance]
    passes: Callable[[Utterance], bool]

    def __iter__(self) -> Iterator[Utterance]:
        return filter(self.passes, self.utterances)


def _same_files(one: Path, other: Path) -> bool:
    """Whether two folders hold the same names and bytes; one that is absent holds nothing."""
    names = [sorted(path.name for path in folder.glob("*")) for folder in (one, other)]
    return names[0] == names[1] and not any(filecmp.cmpfiles(one, other, names[0], shallow=False)[1:])


def _collect_assets(recipe: Recipe, origin: PretrainedSource, folder: Path) -> None:
    if origin.native and origin.native.assets.exists():
        shutil.copytree(origin.native.assets, folder, dirs_exist_ok=True)
    elif origin.external:
        _adopt(recipe, origin.external, folder)


def _adopt(recipe: Recipe, path: Path, assets: Path) -> Mapping[str, Tensor]:
    family: Family = catalog.find("families", recipe.model.family)
    if family.import_checkpoint is None:
        raise ModelError(f"The family {recipe.model.family!r} cannot start from {path}.")
    return family.import_checkpoint(recipe.model.config, path, assets)


def _fill(folder: Path, fill: Callable[[Path], object]) -> None:
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    fill(partial)
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)
