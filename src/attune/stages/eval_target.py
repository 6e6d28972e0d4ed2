"""What there is to evaluate: a run, its checkpoint, a model of any toolkit, or a recipe that names one."""

import hashlib
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from attune import catalog, trust
from attune.contracts import Family, ModelSection
from attune.corpora import Corpus
from attune.errors import ConfigError, ModelError
from attune.files import explain_write_errors, require_writable
from attune.loading.adapter import base_of, is_adapter
from attune.loading.begin import begin_model, external_recipe, require_all_weights, with_local_files
from attune.loading.data import open_manifests
from attune.loading.language_models import search_of
from attune.loading.lock import as_locked
from attune.loading.pretrained import (
    LoadedModel,
    ModelFolders,
    Pretrained,
    build_model,
    is_native,
    load_weights,
    locate_model,
    open_pretrained,
    recipe_to_evaluate,
    run_of_checkpoint,
)
from attune.loading.recognition import family_of
from attune.recipe import Recipe
from attune.report.formats import TABLES, require_format
from attune.report.predictions import copy_files, export_predictions, write_predictions
from attune.run import Run
from attune.run_store import put_results
from attune.site import Site
from attune.sources import is_remote, shown
from attune.stages.breakdown import group_scores, require_groups
from attune.stages.evaluate import (
    Decoding,
    Evaluation,
    as_scored,
    evaluate,
    evaluation_batches,
    scoring_context,
)
from attune.training.settings import AdaptConfig
from attune.world import World

SPLITS = ("test", "dev", "train", "retained")


@dataclass(frozen=True, slots=True)
class EvalTarget:
    """Weights under settings, and the run they belong to if they are evaluated as that run."""

    pretrained: Pretrained
    run: Run | None
    locked_by: Run | None = None  # whose data is evaluated on, exactly as it was then


def open_eval_target(source: str, overrides: Sequence[str], site: Site) -> EvalTarget:
    """A run, a model or another toolkit's checkpoint as it is, or a recipe file with the weights it names."""
    is_shipped = source in catalog.shipped_recipes() and not Path(source).exists()
    if is_shipped or Path(source).suffix in (".yaml", ".yml"):
        recipe = recipe_to_evaluate(catalog.recipe_path(Path(source)), overrides)
        weights: str | None = recipe.model.config.weights
        if weights is None:
            raise ConfigError(f"{source} has no weights to evaluate. Add model.weights=RUN_OR_MODEL.")
        return EvalTarget(_open_named(with_local_files(recipe, site), locate_model(weights, site.cache)), None)
    folder = locate_model(source, site.cache)
    if not is_native(folder):
        return _open_external(folder, overrides, site)
    pretrained = open_pretrained(folder, [each for each in overrides if each.partition("=")[0] in trust.NAMES])
    chosen_from = run_of_checkpoint(folder)
    if overrides:
        recipe = recipe_to_evaluate((chosen_from.folder if chosen_from else folder) / "recipe.yaml", overrides)
        _require_own_weights(folder, pretrained.recipe, recipe)
        return EvalTarget(replace(pretrained, recipe=recipe), None)
    if chosen_from:  # its scores are not the run's
        return EvalTarget(pretrained, None, chosen_from)
    run = Run(folder) if (folder / "checkpoints").is_dir() else None
    return EvalTarget(pretrained, run, run)


def _open_external(path: Path, overrides: Sequence[str], site: Site) -> EvalTarget:
    """Another toolkit's checkpoint as it is; nothing is written."""
    family = family_of(base_of(path, site) if is_adapter(path) else path)
    if family is None:
        raise ModelError(
            f"{path} is not a run, a model or a recipe. Expected a run or model folder (with recipe.yaml), a recipe "
            "(.yaml), a .nemo file, a transformers folder of a Whisper model, or an OpenAI .pt file."
        )
    recipe = with_local_files(external_recipe(path, family, path, overrides), site)
    folders = ModelFolders(path, path)
    return EvalTarget(Pretrained(recipe, folders, path, is_external=True, settings=tuple(overrides)), None)


def _require_own_weights(folder: Path, own: Recipe, wished: Recipe) -> None:
    for name in ("weights", "tokenizer"):
        if getattr(own.model.config, name, None) != getattr(wished.model.config, name, None):
            raise ConfigError(
                f"model.{name} cannot be changed: {folder} has its own. Give the other model, or a recipe."
            )


def load_eval_target(pretrained: Pretrained, site: Site, world: World) -> LoadedModel:
    """The model with its weights, on the world's device."""
    if pretrained.is_external:
        loaded = _load_external(pretrained, site)
    else:
        loaded = build_model(pretrained.recipe, pretrained.folders.task, pretrained.folders.assets)
        load_weights(loaded.task_model.module, pretrained.tensors(), pretrained.weights)
    loaded.task_model.module.to(world.device)
    return loaded


def _open_named(recipe: Recipe, path: Path) -> Pretrained:
    """The weights that a recipe names, under that recipe."""
    family = catalog.find(catalog.FAMILIES, recipe.model.family)
    if is_native(path):
        pretrained = open_pretrained(path)
        if pretrained.recipe.model.family == recipe.model.family:
            _require_same_model(family, pretrained.recipe.model.config, recipe.model.config, path)
        return replace(pretrained, recipe=recipe)
    if family.importer is None or not family.vocabulary.is_own(recipe.model.config):
        raise ModelError(f"{path} is not an attune model. Train a run first, or import it with `attune import`.")
    defaults = replace(recipe.model.config, **_defaults(family))
    _require_same_model(family, defaults, recipe.model.config, path)
    return Pretrained(recipe, ModelFolders(path, path), path, is_external=True)


def _require_same_model(family: Family[ModelSection], trained: ModelSection, asked: ModelSection, path: Path) -> None:
    """Refuse to evaluate weights in another way than they were trained, which fails quietly."""
    changed = [
        f"model.{name}={getattr(trained, name)} (the recipe has {getattr(asked, name)})"
        for name in family.architecture_settings
        if getattr(trained, name) != getattr(asked, name)
    ]
    if changed:
        raise ConfigError(f"{path} was trained with {', '.join(changed)}. Evaluate it with the same settings.")


def _defaults(family: Family[ModelSection]) -> dict[str, object]:
    """The defaults of the settings that belong to trained weights."""
    known = {setting.name: setting.default for setting in fields(family.config)}
    return {name: known[name] for name in family.architecture_settings}


def _load_external(pretrained: Pretrained, site: Site) -> LoadedModel:
    """Another toolkit's weights, imported for this process alone."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = ModelFolders(Path(scratch) / "task", Path(scratch) / "assets")
        plain = replace(pretrained.recipe, adapt=AdaptConfig())
        begun = begin_model(plain, (), folders, site, World.alone())
        require_all_weights(begun, pretrained.weights)
        if pretrained.settings is None or not begun.init.overrides:
            return begun.loaded
        # As the checkpoint recommends, such as its language, unless the user has other wishes.
        wished = [*begun.init.overrides, *pretrained.settings]
        recipe = external_recipe(pretrained.weights, pretrained.recipe.model.family, pretrained.weights, wished)
        loaded = build_model(with_local_files(recipe, site), folders.task, folders.assets)
    loaded.task_model.module.load_state_dict(begun.loaded.task_model.module.state_dict())
    return loaded


def evaluate_target(
    target: EvalTarget,
    on: str | None,
    batch: int | None,
    site: Site,
    world: World,
    out: Path | None = None,
    by: str | None = None,
) -> Generator[Decoding, None, Evaluation]:
    """Decode and score one split or manifest with the recipe's final search.

    Files that predictions name lie with the run, or else beside `out`. With `by`, each speaker, language or value of
    a label is scored too.
    """
    recipe = target.pretrained.recipe
    loaded = load_eval_target(target.pretrained, site, world)
    with tempfile.TemporaryDirectory() as scratch:
        folder = target.run.data if target.run else Path(scratch)
        site = as_locked(target.locked_by, site) if target.locked_by else site
        whole = open_for_evaluation(target, on, folder, site, world)
        if by:
            require_groups(by, whole, loaded.task)
        corpus = as_scored(whole, loaded, recipe)
        beside = out.parent if out else Path(scratch)
        predictions = target.run.predictions_folder if target.run else beside
        context = scoring_context(loaded.task, corpus, predictions, site)
        search = search_of(recipe.decode.final or recipe.decode, loaded.task_model, site, world)
        batches = evaluation_batches(loaded, corpus, batch or recipe.decode.final_batch, recipe, site, world)
        evaluation = yield from evaluate(loaded, corpus, batches, search, context, world)
        groups = group_scores(by, evaluation.predictions, loaded.task, context) if by else {}
        return replace(evaluation, groups=groups, manifest=_whole_name(on) if on and on not in SPLITS else None)


def open_for_evaluation(target: EvalTarget, on: str | None, index_folder: Path, site: Site, world: World) -> Corpus:
    """A split of the target's recipe, or a manifest; None: test, or else dev."""
    recipe = target.pretrained.recipe
    if on is None:
        on = "test" if recipe.data.test else "dev"
    sources: tuple[str, ...] = getattr(recipe.data, on) if on in SPLITS else (on,)
    if not sources:
        raise ConfigError(f"The recipe has no data.{on}. Give a manifest: --on MANIFEST.")
    name = on if on in SPLITS else _name_for(on, target.run)
    return open_manifests(name, sources, recipe, index_folder, site, world)


def _name_for(manifest: str, run: Run | None) -> str:
    """What to call a manifest: as its file, unless that is another's name in the run's scores already."""
    path, whole = Path(manifest), _whole_name(manifest)
    known = run.scores() if run else {}
    taken = {*SPLITS, *(name for name, scores in known.items() if scores.get("manifest") != whole)} if run else set()
    longer = f"{path.absolute().parent.name}-{path.stem}"
    unlike_all = f"{path.stem}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"
    return next((name for name in (path.stem, longer) if name not in taken), unlike_all)


def _whole_name(manifest: str) -> str:
    """A manifest's name wherever it is asked for."""
    return shown(manifest) if is_remote(manifest) else str(Path(manifest).absolute())


def require_places(target: EvalTarget, out: Path | None, alignments: Path | None) -> None:
    """Refuse, before anything is decoded, files that could not be written, and a run that cannot keep its scores."""
    if out:
        require_format(out, TABLES)
    for path in filter(None, (out, alignments)):
        require_writable(path, "Choose another file.")
    if target.run:
        require_writable(target.run.predictions(SPLITS[0]), _remedy(target.run))
        require_writable(target.run.folder / "scores.json", _remedy(target.run))


def record(target: EvalTarget, evaluation: Evaluation, out: Path | None) -> None:
    """Keep predictions and scores with the run, and the predictions where they were asked for."""
    if out:
        with explain_write_errors(out, "Choose another file."):
            export_predictions(out, evaluation.predictions)
            if target.run:
                copy_files(evaluation.predictions, target.run.predictions_folder, out.parent)
    if target.run:
        with explain_write_errors(target.run.folder, _remedy(target.run)):
            write_predictions(target.run.predictions(evaluation.split), evaluation.predictions)
            target.run.add_scores(evaluation.split, {**evaluation.as_json(), "step": target.pretrained.step})
        if target.run.address:
            put_results(target.run, evaluation.split)


def _remedy(run: Run) -> str:
    return f"To write nothing, evaluate its model: attune evaluate {run.model}"
