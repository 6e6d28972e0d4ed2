"""The one way to begin a model: recipe and data in; task, assets, model, weights and adapters out.

Training, checking, measuring memory, importing and the evaluation of another toolkit's weights all begin here.
`model.weights` may name a run or a model of attune's own, or any checkpoint that the family's importer reads.
"""

import filecmp
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from attune import catalog
from attune import recipe as recipes
from attune.contracts import Family, ImportedCheckpoint, ModelSection, RemappedWeights
from attune.errors import ConfigError, ModelError
from attune.files import copy_tree, explain_write_errors, write_text
from attune.loading.adapter import base_of, is_adapter, read_adapter, with_base
from attune.loading.pairs import require_fit
from attune.loading.pretrained import (
    LoadedModel,
    ModelFolders,
    Pretrained,
    build_model,
    export,
    is_native,
    locate_model,
    open_pretrained,
    start_from,
)
from attune.loading.recognition import family_of, naming_the_family, recognizes
from attune.plain_yaml import inline_yaml
from attune.recipe import Recipe
from attune.run import Run
from attune.site import Site
from attune.sources import locate
from attune.training.adapt import Adapted, adapt
from attune.training.deferred import Deferred
from attune.types import ImportedSearch, Utterance
from attune.world import World

TASK_VOCABULARY = ("tokenizer", "vocabulary")  # a task's settings that choose its tokens
IMPORTED = """\
run: {folder}
seed: 0
data: {{train: [{source}]}}  # unknown: an imported model
task: {{name: transcribe}}
model: {{family: {family}, weights: {source}}}
batches: {{micro_utterances: 8}}
optimizer: {{lr: 1e-4}}
train: {{steps: 1}}
"""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PretrainedSource:
    """Where a recipe's weights come from: attune's own format, another toolkit's checkpoint, or nowhere."""

    native: Pretrained | None = None
    external: Path | None = None
    adapter: Path | None = None  # LoRA in peft's layout, to be added to them


@dataclass(frozen=True, slots=True)
class InitReport:
    """What a model starts with: the tensors that are random, wholly or in part, and what there is to report."""

    new_tensors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()  # recipe values that an imported checkpoint recommends
    search: ImportedSearch = ImportedSearch()


@dataclass(frozen=True, slots=True)
class BegunModel:
    """A model as training starts with it."""

    loaded: LoadedModel
    init: InitReport
    adapted: Adapted
    deferred: Deferred | None = None  # what fills the tensors, where it was built without their memory


def begin_model(
    recipe: Recipe,
    utterances: Iterable[Utterance],
    folders: ModelFolders,
    site: Site,
    world: World,
    share: Callable[[World], None] = World.barrier,
    deferred: Deferred | None = None,
) -> BegunModel:
    """Prepare the folders, build the model, load its pretrained weights and add its adapters.

    The folders are written by the first rank, and every rank has them after `share`; each is complete as soon as it
    is there. What an earlier attempt left is replaced: the utterances, or the weights, may have been others.
    With `deferred` large tensors have no memory yet, and it knows their values.
    """
    require_fit(recipe)
    local = with_local_files(recipe, site)
    source = open_pretrained_source(local, site)
    theirs = _family_of_weights(recipe, source)
    if world.is_first:
        _replace_folder(folders.task, lambda folder: _prepare_task(local, source, utterances, folder))
    with deferred or nullcontext(), naming_the_family(recipe, theirs):
        imported = _collect_assets(local, source, folders.assets, site, world)
    share(world)
    with deferred or nullcontext():
        with naming_the_family(recipe, theirs):
            loaded = build_model(recipe, folders.task, folders.assets)
            init = _load_pretrained_weights(loaded, local, source, imported, folders)
        if source.adapter:
            read_adapter(source.adapter).apply(loaded.task_model.module)
        return BegunModel(loaded, init, _adapt(loaded, recipe, init.new_tensors), deferred)


def _family_of_weights(recipe: Recipe, source: PretrainedSource) -> str | None:
    if source.native:
        return source.native.recipe.model.family
    if source.external is None or recognizes(recipe.model.family, source.external):
        return recipe.model.family
    return family_of(source.external)


def rebuild_model(
    recipe: Recipe, folders: ModelFolders, new_tensors: tuple[str, ...], deferred: Deferred | None = None
) -> BegunModel:
    """The model of a run that began before, to be filled from a checkpoint."""
    with deferred or nullcontext():
        loaded = build_model(recipe, folders.task, folders.assets)
        return BegunModel(loaded, InitReport(new_tensors), _adapt(loaded, recipe, new_tensors), deferred)


def _adapt(loaded: LoadedModel, recipe: Recipe, new_tensors: tuple[str, ...]) -> Adapted:
    targets = _family(recipe).lora_targets
    return adapt(loaded.task_model.module, recipe.adapt, recipe.seed, new_tensors, targets)


def open_pretrained_source(recipe: Recipe, site: Site) -> PretrainedSource:
    """What `model.weights` names; nothing is read yet."""
    if recipe.model.config.weights is None:
        return PretrainedSource()
    path = locate_model(recipe.model.config.weights, site.cache)
    adapter = path if is_adapter(path) else None
    path = base_of(path, site) if adapter else path
    if is_native(path):
        return PretrainedSource(native=open_pretrained(path), adapter=adapter)
    if _family(recipe).importer is None:
        raise ModelError(
            f"{path} is not an attune model, and the family {recipe.model.family!r} imports no other checkpoints. "
            "Choose another model.weights."
        )
    return PretrainedSource(external=path, adapter=adapter)


def with_local_files(recipe: Recipe, site: Site) -> Recipe:
    """The recipe with the files that its model needs beside the weights where they are on this machine."""
    config = recipe.model.config
    named = {name: getattr(config, name) for name in _family(recipe).sources if name != "weights"}
    local = {name: str(locate(source, site.cache)) for name, source in named.items() if source is not None}
    return replace(recipe, model=replace(recipe.model, config=replace(config, **local)))


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """A checkpoint to convert, the model folder to write, and what the checkpoint does not say itself."""

    source: str
    to: Path
    tokenizer: str | None = None
    base: str | None = None
    family: str | None = None  # of a folder that holds several models


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """What was imported: of which family, how many parameters, and how it was decoded."""

    family: str
    parameters: int
    search: ImportedSearch


def import_model(request: ImportRequest, site: Site) -> ImportedModel:
    """Convert another toolkit's checkpoint into a model folder.

    A LoRA adapter in peft's layout is merged into `base`, or into the base that it names.
    """
    source, folder, tokenizer, base = request.source, request.to, request.tokenizer, request.base
    path = locate(source, site.cache)
    if base is not None and not is_adapter(path):
        raise ModelError(f"{source} is not a LoRA adapter (it has no adapter_config.json). Remove --base.")
    weights = path if not is_adapter(path) else locate(base, site.cache) if base else base_of(path, site)
    family = request.family or family_of(weights)
    if family is None:
        raise ModelError(
            f"Cannot import {source}: unknown format. Expected a .nemo file, a transformers Whisper folder, an OpenAI "
            ".pt file, a SpeechBrain folder, or a LoRA adapter for one of them."
        )
    if folder.exists():
        raise ModelError(f"{folder} already exists. Choose another folder, or remove it first.")
    if tokenizer is not None and path.suffix != ".pt":
        raise ModelError(f"{source} has its own tokenizer. Remove --tokenizer, which is for OpenAI .pt files.")
    settings = [f"model.tokenizer={inline_yaml(str(locate(tokenizer, site.cache)))}"] if tokenizer is not None else []
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(Path(scratch))
        if base is not None:
            path = with_base(path, str(weights.absolute()), Path(scratch) / "adapter")
        recipe = external_recipe(path, family, folder, settings)
        folders = ModelFolders(run.task, run.assets)
        begun = begin_model(recipe, (), folders, site, World.alone())
        require_all_weights(begun, path)
        recipe = external_recipe(path, family, folder, [*settings, *begun.init.overrides])
        with explain_write_errors(folder, "Choose another folder.", ModelError):
            folder.parent.mkdir(parents=True, exist_ok=True)
        # Built under what the checkpoint recommends, which exporters write down.
        final = build_model(recipe, run.task, run.assets)
        final.task_model.module.load_state_dict(begun.loaded.task_model.module.state_dict())
        export(folder, recipe, run, final.task_model, watch=site.cache.watch)
    parameters = sum(each.numel() for each in final.task_model.model.parameters())
    return ImportedModel(family, parameters, begun.init.search)


def external_recipe(path: Path, family: str, run: Path, overrides: Sequence[str]) -> Recipe:
    """A recipe under which another toolkit's checkpoint is used as it is."""
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch) / "recipe.yaml"
        values = {"folder": inline_yaml(str(run)), "source": inline_yaml(str(path)), "family": family}
        write_text(written, IMPORTED.format(**values))
        importer = catalog.find(catalog.FAMILIES, family).importer
        return recipes.load(written, [*(importer.settings if importer else ()), *overrides]).recipe


def require_all_weights(begun: BegunModel, path: Path) -> None:
    """Refuse a checkpoint that leaves weights of the model random."""
    missing = begun.init.new_tensors
    if missing:
        raise ModelError(f"{path} has no {', '.join(missing[:5])}, which this model needs.")


def _family(recipe: Recipe) -> Family[ModelSection]:
    return catalog.find(catalog.FAMILIES, recipe.model.family)


def _prepare_task(recipe: Recipe, source: PretrainedSource, utterances: Iterable[Utterance], folder: Path) -> None:
    """Reuse the vocabulary of the pretrained model where it will do; otherwise learn one."""
    if _has_own_vocabulary(recipe):
        _require_own_vocabulary(recipe, source)
        return
    task = catalog.find(catalog.TASKS, recipe.task.name)
    native = None if source.native and _has_own_vocabulary(source.native.recipe) else source.native
    if recipe.data.bad_rows == "drop":
        utterances = _Usable(utterances, lambda utterance: task.missing_field(recipe.task.config, utterance) is None)
    is_same_task = native is not None and native.recipe.task.name == recipe.task.name
    if native and is_same_task and task.can_reuse(recipe.task.config, native.folders.task, utterances):
        copy_tree(native.folders.task, folder, may_exist=True)
    else:
        task.prepare(recipe.task.config, utterances, folder)


def _has_own_vocabulary(recipe: Recipe) -> bool:
    return _family(recipe).vocabulary.is_own(recipe.model.config)


def _require_own_vocabulary(recipe: Recipe, source: PretrainedSource) -> None:
    """Refuse weights that were trained with a task's tokens, and tokens of the task that would not be learned.

    Weights of a task's tokens may still have others in their assets: those of an ancestor.
    """
    native, task = source.native, recipe.task.config
    has_choice = "tokens" in {setting.name for setting in fields(recipe.model.config)}
    if not callable(getattr(catalog.find(catalog.TASKS, recipe.task.name), "text", None)):  # it is no TextTask
        remedy = "Set model.tokens=task." if has_choice else "Choose another task or family."
        raise ConfigError(f"The model has its own tokens, for text, and this task has no text. {remedy}")
    if native and native.recipe.model.family == recipe.model.family and not _has_own_vocabulary(native.recipe):
        raise ConfigError("These weights have no tokens of their own. Set model.tokens=task.")
    unused = [name for name in TASK_VOCABULARY if getattr(task, name, None) is not None]
    if unused:
        instead = ", or set model.tokens=task" if has_choice else ""
        raise ConfigError(
            f"The model has its own tokens, so task.{unused[0]} ({getattr(task, unused[0])}) is not used. Remove "
            f"it and task.tokens{instead}."
        )


@dataclass(frozen=True, slots=True)
class _Usable(Iterable[Utterance]):
    """The utterances that pass, each time anew."""

    utterances: Iterable[Utterance]
    passes: Callable[[Utterance], bool]

    def __iter__(self) -> Iterator[Utterance]:
        return filter(self.passes, self.utterances)


def _collect_assets(
    recipe: Recipe, source: PretrainedSource, assets: Path, site: Site, world: World
) -> ImportedCheckpoint | None:
    """Write the assets on the first rank; another toolkit's checkpoint is read here, once by each rank."""
    if source.external:
        with _gathered(recipe, source.external, site) as path:
            return _import(recipe, path, assets, world)
    if world.is_first:
        _replace_folder(assets, lambda folder: _copy_assets(source, folder))
    return None


@contextmanager
def _gathered(recipe: Recipe, path: Path, site: Site) -> Iterator[Path]:
    """The checkpoint with the parts that it has elsewhere, each fetched from its own source."""
    importer = _family(recipe).importer
    parts = importer.remote_parts(path) if importer and importer.remote_parts and importer.recognizes(path) else {}
    if not parts:
        yield path
        return
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / path.name
        copy_tree(path, whole)
        for name, address in parts.items():
            (whole / name).unlink(missing_ok=True)
            shutil.copyfile(locate(address, site.cache), whole / name)
        yield whole


def _copy_assets(source: PretrainedSource, folder: Path) -> None:
    if source.native and source.native.folders.assets.exists():
        copy_tree(source.native.folders.assets, folder, may_exist=True)


def _import(recipe: Recipe, path: Path, assets: Path, world: World) -> ImportedCheckpoint:
    importer = _family(recipe).importer
    if importer is None:
        raise ModelError(f"The family {recipe.model.family!r} cannot load {path}. Choose another model.weights.")
    read = importer.read
    if world.is_first:
        return _replace_folder(assets, lambda folder: read(recipe.model.config, path, folder))
    with tempfile.TemporaryDirectory() as scratch:
        return read(recipe.model.config, path, Path(scratch))


def _load_pretrained_weights(
    loaded: LoadedModel,
    recipe: Recipe,
    source: PretrainedSource,
    imported: ImportedCheckpoint | None,
    folders: ModelFolders,
) -> InitReport:
    remap, native = _family(recipe).vocabulary.remap, source.native
    model = loaded.task_model
    if native:
        tensors: Mapping[str, Tensor] = native.tensors()
        if remap and native.recipe.model.family == recipe.model.family:
            remapped = remap(model.model, tensors, native.folders.task, native.folders.assets)
            return _report(loaded, remapped, native.weights)
        if native.recipe.task.name != recipe.task.name:  # the encoder is what two tasks have in common
            tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("head.")}
        is_same = same_files(folders.task, native.folders.task)
        return InitReport(tuple(start_from(model.module, tensors, native.weights, is_same)))
    if imported and source.external:
        nothing = folders.task.with_name("no-task")  # imported weights come without a task
        renamed = remap(model.model, imported.tensors, nothing, folders.assets) if remap else None
        report = _report(loaded, renamed or RemappedWeights(imported.tensors), source.external)
        notes = (*imported.notes, *report.notes)
        return replace(report, overrides=imported.overrides, search=imported.search, notes=notes)
    return InitReport()


def _report(loaded: LoadedModel, remapped: RemappedWeights, path: Path) -> InitReport:
    missing = start_from(loaded.task_model.module, remapped.tensors, path, same_vocabulary=True)
    notes = (remapped.note,) if remapped.note else ()
    return InitReport(tuple(sorted({*missing, *remapped.renewed})), notes)


def same_files(one: Path, other: Path) -> bool:
    """Whether two folders hold the same names and bytes; one that is absent holds nothing."""
    names = [sorted(path.name for path in folder.glob("*")) for folder in (one, other)]
    return names[0] == names[1] and not any(filecmp.cmpfiles(one, other, names[0], shallow=False)[1:])


def _replace_folder(folder: Path, fill: Callable[[Path], Result]) -> Result:
    """Fill a new folder, and put it in the place of the one there was."""
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    result = fill(partial)
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)
    return result
