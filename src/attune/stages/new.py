"""A recipe from data and a model: manifests are found or prepared, and every line of the recipe says what it is for.

The family's shipped recipe, or that of a model of attune's own, gives the settings; the data decides how long to train.
"""

import hashlib
import re
import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attune import catalog
from attune import recipe as recipes
from attune.errors import ConfigError, DataError, ModelError
from attune.files import explain_write_errors, write_text
from attune.loading.pairs import require_pair
from attune.loading.pretrained import is_native, locate_model, open_pretrained
from attune.loading.recognition import family_of
from attune.plain_yaml import Plain, inline_yaml, read_data, yaml_lines
from attune.recipe import MAX_SECONDS
from attune.recipe_keys import RecipeKey, recipe_keys
from attune.site import Site
from attune.sources import is_address
from attune.stages.new_data import SplitOfData, short_name, splits_of
from attune.stages.prepare import Preparing, Understood
from attune.world import choose_device

EPOCHS = {1.0: 10, 10.0: 5}  # hours of training audio up to which → epochs
EPOCHS_OF_MORE = 3
MOST_WARMUP = 500
CPU_MICRO_UTTERANCES = 8
STEPS_PER_EPOCH = 10  # at least, where there is enough data
UNEDITED = "# Checksum of the lines above, to notice edits: "
COLUMN = 48  # where comments begin
LONGEST_COMMENT = 70
MODEL_SECTIONS = ("adapt", "augment", "batches", "optimizer", "decode")


@dataclass(frozen=True, slots=True)
class NewRequest:
    """What a recipe is to be made from."""

    data: str
    model: str
    to: Path | None = None  # the recipe; None: named after the data and the model
    run: str | None = None
    task: str | None = None
    language: str | None = None
    label: str | None = None
    options: Sequence[str] = ()  # of the corpus, as key=value

    @property
    def name(self) -> str:
        """What to call the experiment: data-model."""
        return f"{short_name(self.data)}-{short_name(self.model)}"

    @property
    def recipe(self) -> Path:
        """Where the recipe goes."""
        return self.to or Path(f"{self.name}.yaml")

    @property
    def command(self) -> str:
        """The command that makes this recipe, which its first line keeps."""
        chosen = {"task": self.task, "language": self.language, "label": self.label, "run": self.run}
        flags = [word for name, value in chosen.items() if value for word in (f"--{name}", value)]
        return shlex.join(["attune", "new", self.data, "--model", self.model, *flags, *self.options])


@dataclass(frozen=True, slots=True)
class Drafted:
    """The recipe that was written, and what it trains and scores on."""

    path: Path
    splits: Mapping[str, SplitOfData] = field(default_factory=dict)
    was_there: bool = False


def draft_recipe(request: NewRequest, site: Site) -> Generator[Preparing | Understood, None, Drafted]:
    """Find or prepare the data, look at the model, and write the recipe; one that this command wrote is kept."""
    if request.recipe.exists() and _is_current(request):
        yield from _note_changes(request)
        return Drafted(request.recipe, was_there=True)
    settings = _starting_settings(request, site)  # a misspelled model stops it before anything is prepared
    require_pair(str(settings["model"]["family"]), request.task or str(settings["task"]["name"]))
    try:
        splits = yield from splits_of(request.data, request.options, site)
    except ConfigError as error:
        raise ConfigError(f"{error}{_hint_at_section(request.options)}") from error
    _require_field(request, str(settings["task"]["name"]), splits["train"])
    plain = _complete(settings, splits, request, choose_device("auto").type == "cpu")
    lines = [f"# {request.command}", f"# Train it: attune train {request.recipe}; about a key: attune explain KEY"]
    text = "".join(f"{line}\n" for line in [*lines, *_explained(plain)])
    with explain_write_errors(request.recipe, "Give --to another file.", ConfigError):
        request.recipe.parent.mkdir(parents=True, exist_ok=True)
        write_text(request.recipe, f"{text}{UNEDITED}{_digest(text)}\n")
    recipes.load(request.recipe)  # whatever is wrong with it is reported now
    return Drafted(request.recipe, splits)


def _is_current(request: NewRequest) -> bool:
    """Whether the recipe that is there is this command's, edited or not; one that someone edited is not replaced."""
    if request.recipe.is_dir():
        raise ConfigError(f"{request.recipe} is a folder. Give --to a file.")
    there = request.recipe.read_text(encoding="utf-8", errors="replace")
    if there.startswith(f"# {request.command}\n"):
        return True
    text, _, digest = there.rpartition(UNEDITED)
    if digest.strip() != _digest(text):
        raise ConfigError(
            f"{request.recipe} already exists, was not made by `{request.command}`, and has been edited. Remove it, "
            f"choose another name (attune new --to FILE), or train it as it is: attune train {request.recipe}"
        )
    return False


def _hint_at_section(options: Sequence[str]) -> str:
    """A value of the recipe without its section, such as epochs=2, was taken for an option of the data."""
    names = {option.partition("=")[0] for option in options}
    keys = [each.key for each in recipe_keys() if not each.owner and each.key.rpartition(".")[2] in names]
    return f"\nA value of the recipe has its section: {keys[0]}=…" if keys else ""


def _note_changes(request: NewRequest) -> Iterator[Understood]:
    """A file that was written to after its manifests were: they have the rows of then."""
    source, train = Path(request.data).expanduser(), recipes.load(request.recipe).recipe.data.train
    manifest = Path(train[0]) if train else source
    if not (source.is_file() and manifest.is_file() and source.stat().st_mtime > manifest.stat().st_mtime):
        return
    is_prepared = manifest.absolute().parent != source.absolute().parent
    old = f"{request.recipe} and {manifest.parent}" if is_prepared else str(request.recipe)
    yield Understood(
        "",
        (
            f"warning: {request.data} has changed since {manifest} was made of it, with the rows of then. To train on "
            f"those of now, remove {old}, and set another run=…",
        ),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _starting_settings(request: NewRequest, site: Site) -> dict[str, Any]:
    """The sections that the data does not decide: the model's own, or those of its family's shipped recipe."""
    path = locate_model(request.model, site.cache)
    if is_native(path):
        own = _without_defaults(recipes.to_plain(open_pretrained(path).recipe))
        kept = {name: own[name] for name in ("task", *MODEL_SECTIONS) if name in own}
        return {**kept, "model": {**own["model"], "weights": _weights(request.model)}}
    family = family_of(path)
    if family is None:
        raise ModelError(
            f"{request.model} is not a model that attune reads. Expected a run, a model folder, a .nemo file, a "
            "transformers folder of a Whisper model, or an OpenAI .pt file."
        )
    shipped = catalog.shipped_recipes().get(family)
    settings: Any = read_data(shipped.read_text(encoding="utf-8"), str(shipped)) if shipped else {}
    kept = {name: settings[name] for name in ("task", *MODEL_SECTIONS) if name in settings}
    kept.setdefault("task", {"name": "transcribe"})
    kept.setdefault("batches", {"micro_utterances": CPU_MICRO_UTTERANCES})
    kept.setdefault("optimizer", {"lr": "1e-4"})
    return {**kept, "model": {"family": family, "weights": _weights(request.model)}}


def _require_field(request: NewRequest, task: str, train: SplitOfData) -> None:
    """Refuse data without what the task learns; the user knows where it is."""
    wanted = {"transcribe": "text", "classify": request.label or "label"}.get(request.task or task)
    if wanted and not set(wanted.split("+")) <= {*train.fields, *train.labels}:
        option = "text=COLUMN" if wanted == "text" else "--label COLUMN"
        known = ", ".join(train.labels if wanted == "text" else [*train.fields, *train.labels]) or "none"
        raise DataError(f"{request.data} has no {wanted!r} to learn. Name its column: {option}. Columns: {known}.")


def _weights(model: str) -> str:
    return model if is_address(model) else _from_here(Path(model).expanduser())


def _from_here(path: Path) -> str:
    """A path as a person would write it in this folder, which is where recipes are trained."""
    whole = path.absolute()
    return str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole)


def _without_defaults(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe without what every recipe has anyway."""
    known = {(each.key, each.owner): each.default for each in recipe_keys()}
    owners = ("", str(plain["task"]["name"]), str(plain["model"]["family"]))

    def pruned(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name, value in values.items():
            inner = pruned(value, f"{prefix}{name}.") if isinstance(value, Mapping) else value
            defaults = {known.get((f"{prefix}{name}", owner)) for owner in owners}
            if inner not in (None, {}) and inline_yaml(inner).replace("'", "") not in defaults:
                kept[name] = inner
        return kept

    return pruned(plain, "")


def _complete(
    settings: dict[str, Any], splits: Mapping[str, SplitOfData], request: NewRequest, on_cpu: bool
) -> dict[str, Plain]:
    """All sections in the order of a recipe."""
    batches = _batches(settings["batches"], splits["train"], on_cpu)
    task = _task(dict(settings["task"]), request)
    sections: dict[str, Any] = {
        "run": request.run or f"runs/{request.name}",
        "seed": 17,
        "data": {name: [_from_here(split.manifest)] for name, split in splits.items()},
        "task": task,
        **{name: settings[name] for name in ("model", "adapt", "augment") if name in settings},
        "batches": batches,
        "optimizer": settings["optimizer"],
        "train": _training(splits["train"], batches, _best_score(str(task["name"])), on_cpu),
        **({"decode": settings["decode"]} if "decode" in settings else {}),
    }
    return sections


def _batches(batches: Mapping[str, Any], train: SplitOfData, on_cpu: bool) -> dict[str, Any]:
    """As the model has them; smaller on a CPU, and where an epoch would otherwise have few steps."""
    found = dict(batches)
    if found.get("micro_utterances"):
        most = CPU_MICRO_UTTERANCES if on_cpu else train.rows
        found["micro_utterances"] = min(int(found["micro_utterances"]), most, max(1, train.rows // STEPS_PER_EPOCH))
    if found.get("micro_seconds"):
        least = max(MAX_SECONDS, train.hours * 3600 / STEPS_PER_EPOCH)  # the longest utterance has to fit
        found["micro_seconds"] = round(min(float(found["micro_seconds"]), least))
    return found


def _task(task: dict[str, Any], request: NewRequest) -> dict[str, Any]:
    if request.task and request.task != task["name"]:
        task = {"name": request.task}
    task.pop("language", None)
    chosen = {"language": request.language, "label": request.label}
    return {**task, **{name: value for name, value in chosen.items() if value}}


def _best_score(task: str) -> str:
    return f"dev.{catalog.find(catalog.TASKS, task).metrics[0].name}"


def _training(train: SplitOfData, batches: Mapping[str, Any], best: str, on_cpu: bool) -> dict[str, Any]:
    epochs = next((count for hours, count in EPOCHS.items() if train.hours <= hours), EPOCHS_OF_MORE)
    per_epoch = _steps_per_epoch(train, batches)
    return {
        "epochs": epochs,
        "warmup": min(MOST_WARMUP, epochs * per_epoch // 10),
        "precision": "fp32" if on_cpu else "bf16",
        "eval_every": per_epoch,
        "save_every": per_epoch,
        "keep_best": best,
    }


def _steps_per_epoch(train: SplitOfData, batches: Mapping[str, Any]) -> int:
    """About as many as the plan will have."""
    seconds, utterances = batches.get("micro_seconds"), batches.get("micro_utterances")
    micros = train.hours * 3600 / float(seconds) if seconds else train.rows / int(utterances or 1)
    return max(1, round(micros / int(batches.get("micros_per_step") or 1)))


def _explained(plain: Mapping[str, Plain]) -> list[str]:
    """The lines of the recipe, each with what its key means beside it, or above it where the line is long."""
    task, family = (str(plain[section][name]) for section, name in (("task", "name"), ("model", "family")))  # type: ignore[index,call-overload]
    keys = [each for each in recipe_keys() if each.owner in ("", task, family)]
    known: dict[str, RecipeKey] = {each.key: each for each in keys}
    explained = [(line, _brief(known[key].meaning) if key in known else "") for line, key in yaml_lines(plain)]
    return [each for line, meaning in explained for each in _commented(line, meaning)]


def _brief(meaning: str) -> str:
    """A comment of one line: details are left to `attune explain`."""
    return meaning if len(meaning) <= LONGEST_COMMENT else f"{re.split(r' [(]|[:;.]( |$)', meaning)[0]}."


def _commented(line: str, meaning: str) -> list[str]:
    if not meaning:
        return [line]
    if len(line) <= COLUMN:
        return [f"{line:{COLUMN}}  # {meaning}"]
    indent = " " * (len(line) - len(line.lstrip()))
    return [f"{indent}# {meaning}", line]
