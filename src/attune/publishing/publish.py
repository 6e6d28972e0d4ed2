"""Models out and in again: exported to a folder, pushed with all that explains them, pulled back."""

import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attune import catalog
from attune import recipe as recipes
from attune.config import flatten
from attune.contracts import HubTask, TaskModel
from attune.errors import ModelError, SourceError
from attune.files import completed, copy_tree, explain_write_errors, folder_bytes, sync, write_text
from attune.loading.begin import same_files
from attune.loading.pretrained import (
    WEIGHTS,
    Pretrained,
    build_model,
    export,
    is_native,
    load_weights,
    locate_model,
    open_pretrained,
)
from attune.plain_yaml import inline_yaml
from attune.recipe import Recipe
from attune.report.card import LAYERS_FILE, CardFacts, layer_plot, model_card
from attune.report.tables import describe_score, metric_label, scores_from_json, with_unit
from attune.run import Run
from attune.run_mirror import put_whole
from attune.run_store import StoredRun, is_stored, open_stored
from attune.site import Site
from attune.sources import ObjectStore, UploadedBytes, Watch, is_remote, locate, push, shown, without_secrets
from attune.stages.eval_target import load_eval_target
from attune.training.average import mean
from attune.world import World

CARD_SETTINGS = (
    *("optimizer.name", "optimizer.lr", "train.steps", "train.epochs", "train.warmup"),
    *("train.schedule", "train.precision"),
    *("batches.micro_seconds", "batches.micro_utterances", "batches.micros_per_step", "adapt.method", "seed"),
    "model.window",
)
NEMO, CARD = ".nemo", "README.md"
METHODS = ("transcribe", "classify")  # of a loaded model, each for the task of its name
TRAINING = ("log.jsonl", "environment.json", "command.txt", "sources.lock.json")
TRACKED = ("tensorboard", "mlruns", "wandb")  # folders of trackers
TEXTS = (".txt", ".md", ".json", ".jsonl", ".yaml", ".log")


def export_model(source: str, to: Path, site: Site, for_transformers: bool = False) -> None:
    """Write the model of a run, its best checkpoint, as a folder that anyone can load, or in one format of others."""
    path = locate_model(source, site.cache)
    is_own_format = to.suffix != NEMO and not for_transformers
    if to.suffix == NEMO and (to.is_dir() or for_transformers):
        raise ModelError(f"{to} is a folder; expected a .nemo file. Choose another name.")
    if to.suffix != NEMO:
        _require_free(to, may_replace=is_own_format)
    pretrained = open_pretrained(path)
    loaded = load_eval_target(pretrained, site, World.alone())
    run, model = Run(pretrained.folders.task.parent), loaded.task_model
    with explain_write_errors(to, "Choose another folder.", ModelError):
        to.parent.mkdir(parents=True, exist_ok=True)
        if is_own_format:
            has_card = path == run.folder and run.checkpoints.is_dir()  # another checkpoint has other scores

            def add_card(folder: Path) -> None:
                if has_card:
                    _write_card(folder, _facts(run, run.recipe(), to.name, folder))

            export(to, pretrained.recipe, run, model, add_card, site.cache.watch)
        else:
            _export_for_others(to, pretrained.recipe, run, model, for_transformers, site.cache.watch)


def _require_free(to: Path, may_replace: bool) -> None:
    if to.exists() and not (may_replace and is_native(to) and (to / WEIGHTS).is_file()):
        raise ModelError(f"{to} already exists and is not an attune model. Choose another folder.")


def average_models(sources: Sequence[str], to: Path, site: Site) -> None:
    """Write the mean of several checkpoints or models of one architecture as a model folder."""
    _require_free(to, may_replace=True)
    models = [open_pretrained(locate_model(source, site.cache)) for source in sources]
    first = models[0]
    _require_one_vocabulary(models)
    tensors = mean((each.weights, each.tensors()) for each in models)
    model = build_model(first.recipe, first.folders.task, first.folders.assets).task_model
    load_weights(model.module, tensors, first.weights)
    with explain_write_errors(to, "Choose another place.", ModelError):
        to.parent.mkdir(parents=True, exist_ok=True)
        export(to, first.recipe, Run(first.folders.task.parent), model, watch=site.cache.watch)


def _require_one_vocabulary(models: Sequence[Pretrained]) -> None:
    """Refuse models whose output rows mean different tokens."""
    first = models[0]
    for other in models[1:]:
        if not same_files(first.folders.task, other.folders.task):
            raise ModelError(
                f"{other.weights} has another vocabulary than {first.weights}. Average checkpoints of one run, or of "
                "runs with the same one."
            )


def _export_for_others(
    to: Path, recipe: Recipe, run: Run, model: TaskModel, for_transformers: bool, watch: Watch
) -> None:
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".") as scratch:
        folder = Path(scratch) / "model"
        export(folder, recipe, run, model, watch=watch)
        if for_transformers:
            _in_transformers(recipe.model.family, model, folder).rename(to)
        else:
            _keep_nemo(folder / f"model{NEMO}", to)


def _in_transformers(name: str, model: TaskModel, folder: Path) -> Path:
    """Where an exported model is in transformers' format: its own folder, or one that is written now."""
    family = catalog.find(catalog.FAMILIES, name)
    if (folder / "config.json").is_file():
        return folder
    to_transformers = family.exporters.to_transformers
    if to_transformers is None:
        raise ModelError(f"transformers has no format for the family {name}. Remove --for-transformers.")
    written = folder.with_name("transformers")
    to_transformers(model.model, folder, written)
    sync(written)
    return written


def _keep_nemo(file: Path, to: Path) -> None:
    if not file.is_file():
        raise ModelError(
            "Only transducers with SentencePiece tokens can be exported as .nemo. Give --to a folder, e.g. "
            f"{to.with_suffix('')}."
        )
    with completed(to) as partial:
        file.rename(partial)


def push_model(source: str, address: str, site: Site) -> str:
    """Put a run's model where others can load it, with its recipe, scores, log and a card; returns where that is."""
    path = locate_model(source, site.cache)
    name = _name(address)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        make_bundle(path, folder, address, site)
        return push(folder, address, f"{name}: {_headline(path)}", site.cache.watch)


def make_bundle(path: Path, folder: Path, address: str, site: Site) -> None:
    """Everything that is pushed to an address. A model folder that is no run goes as it is."""
    run = Run(path)
    if not run.checkpoints.is_dir():
        open_pretrained(path)
        copy_tree(path, folder)
        _remove_secrets(folder)
        return
    export_model(str(path.absolute()), folder, site)
    training = folder / "training"
    training.mkdir()
    recipe = run.recipe()
    write_text(training / "recipe.yaml", recipes.resolved_yaml(recipe))
    for each in TRAINING:
        if (path / each).is_file():
            write_text(training / each, without_secrets(_text(path / each)))
    for each in TRACKED:
        if (path / each).is_dir():
            copy_tree(path / each, training / each, ignore=_links)  # W&B links its newest run
    _remove_secrets(folder)
    if _scores(path):
        shutil.copy(path / "scores.json", folder)
    _write_card(folder, _facts(run, recipe, address, folder))


def _links(folder: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_symlink()]


def _write_card(folder: Path, facts: CardFacts) -> None:
    """The card, and the picture that it shows."""
    write_text(folder / CARD, model_card(facts))
    if plot := layer_plot(facts.scores):
        write_text(folder / LAYERS_FILE, plot)


def _remove_secrets(folder: Path) -> None:
    """Of the texts that attune writes; earlier versions, and people, leave credentials in addresses there."""
    training = [path for path in folder.glob("training/**/*") if path.suffix in TEXTS]
    for path in filter(Path.is_file, [*folder.glob("recipe.yaml"), *folder.glob("README.md"), *training]):
        written = path.read_text(encoding="utf-8", errors="surrogateescape")
        if without_secrets(written) != written:
            path.write_bytes(without_secrets(written).encode(errors="surrogateescape"))


def push_run(source: str, address: str, site: Site, report: Callable[[str], None]) -> str:
    """Copy a whole run, with its checkpoints and log, to an object store, to go on with it there."""
    path = _whole_run(source, site) or locate(source, site.cache)
    if not Run(path).checkpoints.is_dir() or not is_stored(address):
        raise SourceError(f"Cannot push {shown(source)} to {shown(address)} as a run. Give a run and s3://BUCKET/NAME.")
    size = folder_bytes(path)
    sent = UploadedBytes(address, size, site.cache.watch)
    put_whole(StoredRun(ObjectStore(address, site.timeout, report, sent), path), report)
    sent(size)  # of what was not sent, such as locks
    return address


def pull(source: str, to: Path, site: Site) -> Path:
    """Copy what a source names to a folder or file of one's own, a run as a run; it appears whole or not at all."""
    if to.exists():
        raise SourceError(f"{to} already exists. Remove it, or choose another folder for {shown(source)}.")
    stored = _whole_run(source, site)
    path = stored or locate(source, site.cache)
    with explain_write_errors(to, "Choose another folder.", SourceError):
        to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.parent / f".{to.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        if path.is_dir():
            hidden = shutil.ignore_patterns(".*", "data") if stored else None  # what a copy of a run has of its own
            copy_tree(path, partial, ignore=hidden)
        else:
            shutil.copyfile(path, partial)
        sync(partial)
        partial.rename(to)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)
    return to


def _whole_run(source: str, site: Site) -> Path | None:
    """This machine's copy of all of a run in an object store; its objects are not the files of a run directory."""
    stored = open_stored(source, site.cache, site.timeout) if is_stored(source) else None
    if stored is None or not stored.is_run():
        return None
    stored.restore_all()
    return stored.run.folder


def _headline(path: Path) -> str:
    """The first score of the run, for a commit message."""
    for split, scored in _scores(path).items():
        for metric, score in scored["scores"].items():
            if score:
                return f"{split} {metric_label(metric)} {with_unit(score['value'], score.get('unit', '%'))}"
    return "a model"


def _name(address: str) -> str:
    return shown(address).rstrip("/").rpartition("/")[2].partition("@")[0]


def _facts(run: Run, recipe: Recipe, address: str, folder: Path) -> CardFacts:
    plain: dict[str, Any] = flatten(recipes.to_plain(recipe))
    commands = _text(run.folder / "command.txt").splitlines()
    weights = recipe.model.config.weights
    task = catalog.find(catalog.TASKS, recipe.task.name)
    return CardFacts(
        name=_name(address),
        address=shown(address),
        family=catalog.own_name(recipe.model.family),
        task=catalog.own_name(recipe.task.name),
        pipeline_tag=task.pipeline_tag if isinstance(task, HubTask) else None,
        method=recipe.task.name if recipe.task.name in METHODS else None,
        language=plain.get("task.language"),
        weights=_short(weights) if weights else None,
        loads_in_transformers=(folder / "config.json").is_file(),
        data=_data(recipe),
        scores=_scores(run.folder),
        settings={key: inline_yaml(plain[key]) for key in CARD_SETTINGS if plain.get(key) is not None},
        environment=_environment(run.folder / "environment.json"),
        command=without_secrets(commands[0]) if commands else "",
    )


def _data(recipe: Recipe) -> dict[str, list[str]]:
    data = recipe.data
    named = {"train": data.stream.shards if data.stream else data.train, "dev": data.dev, "test": data.test}
    return {split: [_short(each) for each in sources] for split, sources in named.items()}


def _short(source: str) -> str:
    """An address as it may be shown; of a path, its end, which is all that others can make sense of."""
    return shown(source) if is_remote(source) else "/".join(Path(source).parts[-2:])


def _scores(folder: Path) -> dict[str, Any]:
    path = folder / "scores.json"
    scores = _json(path)
    with _undamaged(path):
        for scored in scores.values():
            [describe_score(score) for score in scores_from_json(scored).values.values()]
    return scores


def _environment(path: Path) -> dict[str, Any]:
    found = _json(path)
    if not found:
        return found
    with _undamaged(path):
        return {**found, "devices": [*map(str, found.get("devices", []))], "packages": dict(found.get("packages", {}))}


def _json(path: Path) -> dict[str, Any]:
    with _undamaged(path):
        return dict(json.loads(_text(path) or "{}"))


def _text(path: Path) -> str:
    with _undamaged(path):
        return path.read_text(encoding="utf-8") if path.is_file() else ""


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Refuse a record of a run that is not as attune wrote it: others would get it as it is."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({error}). Restore it, or remove it to publish without it.") from error
