"""Models on disk: from a folder to a model that can be trained or decoded, and back to a folder that anyone can load.

A model folder holds recipe.yaml (which says what it is), model.safetensors, task/ (vocabulary or labels) and assets/
(what the family must know besides). A run directory can stand in for one: its best checkpoint is meant, or else its
newest. `RUN@best`, `RUN@last` and `RUN@step-400` choose one of its checkpoints.
"""

import glob
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from attune import catalog
from attune import recipe as recipes
from attune.contracts import Task, TaskModel
from attune.errors import ModelError
from attune.files import copy_tree, growing, sync, write_text
from attune.loading.pairs import require_fit
from attune.plain_yaml import inline_yaml
from attune.recipe import Recipe
from attune.run import Best, Run
from attune.run_store import locate_stored
from attune.seeds import derive
from attune.sources import Cache, TransferProgress, Watch, is_remote, locate, unwatched
from attune.stored_tensors import TensorToWrite, write_tensors
from attune.tensor_files import read_safetensors, write_safetensors
from attune.training import checkpoint
from attune.training.adapt import merge_lora
from attune.training.memory import is_out_of_memory
from attune.training.settings import AdaptConfig

WEIGHTS = "model.safetensors"
FORMAT = {"format": "pt"}  # what transformers looks for in a file of weights
OF_DECODE = re.compile(r"^decode\.(?!final\b)")
OTHER_SEARCH = re.compile(r"^decode\.(final\.)?(search|lm)=")
CHOSEN = re.compile(r"(?P<run>.+)@(?P<which>best|last|step-(?P<step>\d+))")


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """What a model is built from: what its task prepared, and what its family must know."""

    task: Path
    assets: Path


@dataclass(frozen=True, slots=True)
class Pretrained:
    """Weights with the recipe and the folders that belong to them; another toolkit's come without folders."""

    recipe: Recipe
    folders: ModelFolders
    weights: Path  # a safetensors file, or the index of a checkpoint in shards
    step: int | None = None  # of the checkpoint, when it is one
    is_external: bool = False
    adapt: AdaptConfig = AdaptConfig()  # how they were trained, whatever recipe they are used under
    settings: tuple[str, ...] | None = None  # overrides, where no recipe but another toolkit's checkpoint decides

    def tensors(self) -> dict[str, Tensor]:
        """The weights of the plain model, with what LoRA added to them added in."""
        return merge_lora(read_weights(self.weights), self.adapt)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A task and a model built for it."""

    task: Task
    task_model: TaskModel


def is_native(folder: Path) -> bool:
    """Whether a folder is a model, a run or a run's checkpoint of attune's."""
    return (folder / "recipe.yaml").is_file() or run_of_checkpoint(folder) is not None


def run_of_checkpoint(folder: Path) -> Run | None:
    """The run that a folder is a checkpoint of."""
    run = Run(folder.parent.parent)
    is_checkpoint = checkpoint.is_step(folder) and folder.parent == run.checkpoints
    return run if is_checkpoint and (run.folder / "recipe.yaml").is_file() else None


def locate_model(source: str, cache: Cache) -> Path:
    """The file or folder with the weights that `source` names: any source, or a checkpoint of a run, as RUN@best."""
    chosen = CHOSEN.fullmatch(source)
    stored = locate_stored(chosen["run"], cache, chosen["which"]) if chosen else locate_stored(source, cache)
    if chosen is None or (is_remote(source) and not stored) or Path(source).expanduser().exists():
        _require_known_choice(source)
        return stored or locate(source, cache)
    run = Run(stored or locate(chosen["run"], cache))
    if not run.checkpoints.is_dir():
        raise ModelError(f"{run.name} has no checkpoints to choose {source} from. Give a run.")
    if chosen["which"] == "best":
        return _best_checkpoint(run)
    step, saved = chosen["step"], run.checkpoints
    folder = checkpoint.folder_of(saved, int(step)) if step else checkpoint.newest(saved)[0]
    if folder is None or not folder.is_dir():
        names = [path.name for path in sorted(saved.iterdir()) if checkpoint.is_step(path)]
        steps = [int(name.removeprefix("step-")) for name in names]
        there = f"It has {', '.join(f'@step-{step}' for step in steps)}" if steps else "It has none"
        raise ModelError(f"{run.name} has no checkpoint {chosen['which']}. {there}; train.keep_last keeps more.")
    return folder


def _best(run: Run) -> Best | None:
    """The record of the best checkpoint, if there is one; where it is damaged, nobody knows which that is."""
    best, record = run.best(), run.folder / "best.json"
    if best is None and record.exists():
        raise ModelError(
            f"{record} is damaged, so the best checkpoint is unknown. To find it again, run: attune train {run.name}. "
            f"Or choose one: {run.name}@last."
        )
    return best


def _best_checkpoint(run: Run) -> Path:
    best = _best(run)
    if best is None:
        raise ModelError(
            f"{run.name} has no best checkpoint: nothing was scored, or train.keep_best is unset. Use {run.name}@last."
        )
    return checkpoint.folder_of(run.checkpoints, best.step)


def open_pretrained(folder: Path, trusted: Sequence[str] = ()) -> Pretrained:
    """A model folder, or a run directory with a checkpoint in it; `trusted` are overrides that name plug-ins."""
    if not is_native(folder):
        raise ModelError(
            f"{folder} is neither a model nor a run: it has no recipe.yaml. For a model of another toolkit, run: "
            f"attune import {folder} --to models/NAME"
        )
    run, chosen = run_of_checkpoint(folder) or Run(folder), folder
    recipe = recipe_to_evaluate(run.folder / "recipe.yaml", trusted)
    if run.folder == folder:
        if (folder / WEIGHTS).is_file():
            return Pretrained(recipe, ModelFolders(folder / "task", folder / "assets"), folder / WEIGHTS)
        if recipe.train.average and (run.model / WEIGHTS).is_file():
            return replace(open_pretrained(run.model), recipe=recipe)
        chosen = _choose(run)
    reason = checkpoint.damage(chosen)
    if reason:
        # Not quietly the next best: whoever names a run means its best, and would take these scores for it.
        raise ModelError(
            f"{chosen} is damaged: {reason}. To choose another one as the best, run: attune train {run.name}"
        )
    step, weights = int(chosen.name.removeprefix("step-")), checkpoint.weights_file(chosen)
    return Pretrained(recipe, ModelFolders(run.task, run.assets), weights, step, adapt=recipe.adapt)


def _require_known_choice(source: str) -> None:
    """Refuse RUN@400 and the like, where RUN is one."""
    run, _, which = source.rpartition("@")
    if run and not Path(source).expanduser().exists() and Run(Path(run).expanduser()).checkpoints.is_dir():
        raise ModelError(f"{run} has no checkpoint {which!r}. Use @best, @last or @step-N.")


def recipe_to_evaluate(path: Path, overrides: Sequence[str]) -> Recipe:
    """A recipe under overrides; what they say of `decode` is about the search that evaluates: the final one.

    What was tuned for a run on its dev set (`attune tune-fusion`) counts, unless another search or language model is
    chosen.
    """
    is_other = any(OTHER_SEARCH.match(each) for each in overrides)
    tuned = () if is_other else Run(path.parent).tuned_decoding()
    wished = [*(f"decode.{name}={inline_yaml(value)}" for name, value in tuned), *overrides]
    others = [each for each in wished if not OF_DECODE.match(each)]
    if recipes.load(path, others).recipe.decode.final is None:
        return recipes.load(path, wished).recipe
    return recipes.load(path, [OF_DECODE.sub("decode.final.", each) for each in wished]).recipe


def _choose(run: Run) -> Path:
    """The best checkpoint, or else the newest."""
    best = _best(run)
    chosen = checkpoint.folder_of(run.checkpoints, best.step) if best else checkpoint.newest(run.checkpoints)[0]
    if chosen is None:
        raise ModelError(f"{run.name} has no checkpoint yet. Train it first: attune train {run.name}")
    return chosen


def build_model(recipe: Recipe, task_folder: Path, assets: Path) -> LoadedModel:
    """Build the recipe's model, with weights that are a function of its seed."""
    require_fit(recipe)
    task = catalog.find(catalog.TASKS, recipe.task.name)(recipe.task.config, task_folder)
    family = catalog.find(catalog.FAMILIES, recipe.model.family)
    torch.manual_seed(derive(recipe.seed, "weights"))
    try:
        return LoadedModel(task, family.build(recipe.model.config, task, assets))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            "This recipe's model does not fit into memory. Check its sizes, such as task.head.width and model.preset."
        ) from None


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Fill a model with exactly these weights, read from `path`."""
    missing = set(_copy(model, tensors, path))
    if missing:
        raise ModelError(f"{path} has no {', '.join(sorted(missing)[:5])}, which this model needs.")


def start_from(model: nn.Module, tensors: Mapping[str, Tensor], path: Path, same_vocabulary: bool) -> list[str]:
    """Begin with pretrained weights, read from `path`; returns the names of tensors that stay random.

    Rows of the output layer mean tokens: with another vocabulary they are left out, even when the sizes agree.
    """
    if not same_vocabulary:
        tensors = {name: tensor for name, tensor in tensors.items() if ".output." not in f".{name}"}
    return _copy(model, tensors, path)


def _copy(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> list[str]:
    own = model.state_dict()
    wrong = [
        f"{name}: {tuple(tensor.shape)} in the file, {tuple(own[name].shape)} in the model" if name in own else name
        for name, tensor in tensors.items()
        if name not in own or own[name].shape != tensor.shape
    ]
    if wrong:
        listed = "\n".join(f"  {line}" for line in wrong[:5])
        raise ModelError(f"{path} does not fit this model:\n{listed}\nUse the model settings it was trained with.")
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
    return sorted(set(own) - set(tensors))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of a checkpoint's index; half precision on disk is widened."""
    tensors = checkpoint.tensors(path.parent) if path.name == checkpoint.INDEX else read_safetensors(path)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def export(
    folder: Path,
    recipe: Recipe,
    run: Run,
    model: TaskModel,
    add: Callable[[Path], None] = lambda partial: None,
    watch: Watch = unwatched,
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a model folder and what `add` puts into it; it appears whole, in place of the one before.

    `watch` gets how far it is. `weights` are written where the model has only this process's slices of them.
    """
    partial = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        with _watched_writing(partial, folder, model, watch):
            _write_model(partial, recipe, run, model, weights)
        add(partial)
        _put_in_place(partial, folder)
    except (OSError, SafetensorError) as error:  # safetensors hides the operating system's error in its own
        raise ModelError(f"Cannot write {folder}: {error}. Free some space and run the same command again.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for suffix in ("part", "old"):  # what exports that were killed have left
        for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.????????.{suffix}"):
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _watched_writing(partial: Path, folder: Path, model: TaskModel, watch: Watch) -> Iterator[None]:
    total = sum(each.numel() * each.element_size() for each in model.module.state_dict().values())

    def show(done: int) -> None:
        watch(TransferProgress(str(folder), done, total, verb="writing"))

    with growing(partial, lambda done: show(min(done, total - 1))):
        yield
    show(total)


def _write_model(
    partial: Path, recipe: Recipe, run: Run, model: TaskModel, weights: Mapping[str, Tensor] | None
) -> None:
    for part in (run.task, run.assets):
        if part.is_dir():  # empty folders get lost on hubs and in buckets
            copy_tree(part, partial / part.name)
        (partial / part.name).mkdir(parents=True, exist_ok=True)
    plain = replace(recipe, adapt=AdaptConfig())  # the exported weights have all additions added in
    write_text(partial / "recipe.yaml", recipes.resolved_yaml(plain))
    own = model.module.state_dict()
    if weights is None:
        write_safetensors(own, partial / WEIGHTS, FORMAT)
    else:
        write_tensors(partial / WEIGHTS, {name: _later(own[name], name, weights) for name in own}, FORMAT)
    write_beside = catalog.find(catalog.FAMILIES, recipe.model.family).exporters.beside
    if write_beside:
        write_beside(model.model, run.assets, partial)
    sync(partial / WEIGHTS)
    sync(partial)


def _later(like: Tensor, name: str, weights: Mapping[str, Tensor]) -> TensorToWrite:
    return TensorToWrite(like.dtype, tuple(like.shape), lambda write: write(weights[name]))


def _put_in_place(partial: Path, folder: Path) -> None:
    if folder.exists():
        doomed = partial.with_suffix(".old")
        folder.rename(doomed)
        os.sync()
        partial.rename(folder)
        shutil.rmtree(doomed)
    else:
        partial.rename(folder)
    sync(folder.parent)
