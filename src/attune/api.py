"""The Python face: what notebooks and scripts need, and what the command line is a thin layer over."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import cast, get_args

import torch
import torch.distributed as dist

from attune import recipe as recipes
from attune.catalog import NORMALIZERS, find
from attune.decoding.predict import prepare_for_decoding
from attune.display import Display, drawn, show_preparing, shown
from attune.errors import ConfigError, DataError, ModelError
from attune.families.ssl.extract import FeatureExtractor as FeatureExtractor
from attune.families.ssl.extract import ready
from attune.families.ssl.upstream import UPSTREAMS
from attune.files import copy_tree
from attune.loading.language_models import read_phrases, search_of
from attune.loading.lock import as_locked
from attune.loading.place import local_run
from attune.loading.pretrained import is_native, open_pretrained
from attune.recipe import Recipe
from attune.recognizer import Chunking as Chunking
from attune.recognizer import Recognizer as Recognizer
from attune.recordings import load_audio as load_audio
from attune.report.page import Page
from attune.run import Run
from attune.run_report import save_report
from attune.scoring.error_rates import score_transcripts
from attune.site import Site, this_site
from attune.sources import locate
from attune.stages import drain
from attune.stages.eval_target import EvalTarget, evaluate_target, load_eval_target, open_eval_target, record
from attune.stages.evaluate import Evaluation
from attune.stages.new import NewRequest, draft_recipe
from attune.transfers import with_progress
from attune.types import DecodingPrecision, Scores
from attune.world import World, choose_device

FORMER_CHUNKING = {"pauses": "vad", "windows": "timestamps"}


class TrainedRun(Run):
    """A run directory, with its report: what `train` returns."""

    __slots__ = ()

    def report(self, out: Path | str | None = None) -> Page:
        """A page that shows itself in a notebook, written to report.html in the run or to `out`."""
        return save_report(self, out)


def load(
    source: str | Path | Run,
    device: str = "auto",
    chunking: Chunking = "vad",
    fallback: bool | None = None,
    language: str | None = None,
    phrases: Sequence[str] = (),
    precision: DecodingPrecision | None = None,
    decode: Mapping[str, object] | None = None,
    long: str | None = None,
) -> Recognizer:
    """A run, a model of any toolkit (a folder, a file or a URL), or a recipe that names weights, ready to use.

    `RUN@best`, `RUN@last` and `RUN@step-400` choose a checkpoint of a run; `hf://openai/whisper-small`, a folder of
    transformers and a .nemo file work as they are.

    `chunking` is how recordings are decoded that are longer than the model takes at once: cut at pauses by voice
    activity detection ("vad"), or window by window along predicted timestamps ("timestamps"). `fallback` samples again
    what fails OpenAI's thresholds; None: as the recipe has it. `language` is that of the speech, for multilingual
    models; None: the recipe's, or else detected once per recording. `phrases` are names and terms to expect in every
    recording, which a beam search boosts; a .txt file stands for its lines. `precision` is what the model computes
    in, as `decode.precision` has it: "int8" is the fastest on a CPU. `decode` changes the recipe's search, such as
    `{"search": "beam", "beam": 8, "lm": "words.arpa"}`. `long` is the former name of `chunking`.
    """
    _require_chunking(chunking, long)
    if precision is not None:
        _require_choice("precision", precision, get_args(DecodingPrecision))
    source = _place(source)
    site = with_progress(this_site(device=device))
    world = _world(device)
    changes = dotted({"decode": decode or {}, **({"task": {"language": language}} if language else {})})
    target = open_eval_target(source, changes, site)
    if chunking == "timestamps":
        _require_timestamps(target.pretrained.recipe)
        target = open_eval_target(source, [*changes, "model.timestamps=true"], site)
    recognizer = recognizer_of(target, site, world, chunking, fallback, precision)
    return recognizer.expecting(read_phrases(phrases, site)) if phrases else recognizer


def recognizer_of(
    target: EvalTarget,
    site: Site,
    world: World,
    chunking: Chunking = "vad",
    fallback: bool | None = None,
    precision: DecodingPrecision | None = None,
) -> Recognizer:
    """What is opened for an evaluation, ready to use, with the recipe's final search."""
    pretrained = target.pretrained
    loaded, decode = load_eval_target(pretrained, site, world), pretrained.recipe.decode
    locked = as_locked(target.locked_by, site) if target.locked_by else site
    settings = search_of(decode.final or decode, loaded.task_model, locked, world)
    if fallback is not None:
        settings = replace(settings, fallback=fallback)
    if precision is not None:
        settings = replace(settings, precision=precision)
    task_model = prepare_for_decoding(loaded.task_model, settings)
    return Recognizer(pretrained.recipe, replace(loaded, task_model=task_model), settings, world, chunking)


def load_upstream(name: str, weights: str | Path | None = None, device: str = "auto") -> FeatureExtractor:
    """An upstream of `attune list upstreams`, ready to compute features.

    `weights` is a transformers folder, a .pt file or the address of one, or a run or model of attune's with such an
    upstream; filterbanks have none.
    """
    plug_in = find(UPSTREAMS, name)
    if weights is not None and plug_in.read is None:
        raise ConfigError(f"The upstream {name!r} has no weights. Remove `weights`.")
    site = with_progress(this_site(device=device))
    path = locate(str(weights), site.cache) if weights is not None else None
    with tempfile.TemporaryDirectory() as assets:
        tensors: Mapping[str, torch.Tensor] = {}
        if path and is_native(path):
            pretrained = open_pretrained(path)
            copy_tree(pretrained.folders.assets, Path(assets), may_exist=True)
            tensors = {
                name.removeprefix("upstream."): tensor
                for name, tensor in pretrained.tensors().items()
                if name.startswith("upstream.")
            }
        elif path and plug_in.read:
            tensors = plug_in.read(path, Path(assets))
        upstream = plug_in.build(Path(assets))
    if path:
        cast(torch.nn.Module, upstream).load_state_dict(dict(tensors))
    return ready(upstream, _world(device).device)


def _require_chunking(chunking: str, long: str | None) -> None:
    if long is not None:
        former = FORMER_CHUNKING.get(long, "vad")
        raise ConfigError(f'load(long={long!r}) is now load(chunking="{former}").')
    _require_choice("chunking", chunking, get_args(Chunking))


def _require_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"Unknown {name} {value!r}. Use {', '.join(known[:-1])} or {known[-1]}.")


def _place(source: str | Path | Run) -> str:
    """A path or an address; a run stands for its folder."""
    return str(source.folder if isinstance(source, Run) else source)


def _require_timestamps(recipe: Recipe) -> None:
    if "timestamps" not in {setting.name for setting in fields(recipe.model.config)}:
        raise ModelError(
            f'chunking="timestamps" needs a model that predicts timestamps; the family {recipe.model.family!r} does '
            'not. Use chunking="vad".'
        )


def new(data: str | Path, model: str | Path, **settings: str) -> Path:
    """Make a recipe from data (CSV, folder, manifest, HF dataset …) and a model; returns its path.

    `settings` are `to`, `run`, `task`, `language` and `label` as `attune new` has them, and options of the data, such
    as `text="sentence"`.
    """
    named = {name: settings.pop(name) for name in ("run", "task", "language", "label") if name in settings}
    to = Path(settings.pop("to")) if "to" in settings else None
    request = NewRequest(str(data), str(model), to, **named, options=dotted(settings))
    display = Display(sys.stdout)
    drafted = drain(draft_recipe(request, with_progress(this_site())), show_preparing(display))
    display.close()
    return drafted.path


def train(recipe: str | Path, show: bool = True, **overrides: object) -> TrainedRun:
    """Train to the end in this process, or resume: `train("x.yaml", optimizer={"lr": 1e-4})`.

    `recipe` is a file, the name of a shipped one, a run to resume, or data, with `model="hf://…"`. `show=False`
    prints nothing.
    """
    from attune.stages import train as stage  # loads torch's sharding, a second that a Recognizer does without

    path, words = _recipe_and_words(recipe, overrides)
    loaded = recipes.load(path, words).recipe
    site = this_site()
    world = _world(site.device)
    site = with_progress(site) if show and world.is_first else site
    request = stage.Request([Path(sys.argv[0]).name, "attune.train", str(recipe), *words])
    events = stage.train(loaded, request, site, world)
    for _ in shown(events, Display(sys.stdout)) if show and world.is_first else events:
        pass
    return TrainedRun(local_run(loaded.run, site).folder)


def _recipe_and_words(recipe: str | Path, overrides: dict[str, object]) -> tuple[Path, list[str]]:
    """The recipe file that is meant, made from data and a model if need be, and the overrides as words."""
    if isinstance(overrides.get("model"), str | Path):
        rest = {name: value for name, value in overrides.items() if isinstance(value, Mapping) or name == "seed"}
        of_data = {name: str(value) for name, value in overrides.items() if name not in rest}
        return new(recipe, **of_data), dotted(rest)
    path = Path(recipe)
    is_run = path.is_dir() and (path / "status.json").is_file()
    if path.exists() and not is_run and path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f'{recipe} is not a recipe. If it is data, name the model to train: model="hf://ORG/NAME".')
    words = [f"run={_flow(str(path))}"] if is_run else []  # it may have been moved
    return path / "recipe.yaml" if is_run else path, [*words, *dotted(overrides)]


def evaluate(run: str | Path | Run, on: str | None = None, batch: int | None = None, show: bool = True) -> Evaluation:
    """Decode and score a run or a model on `dev`, `test`, `train` or a manifest; `show=False` draws no bar."""
    if batch is not None and batch < 1:
        raise ConfigError(f"batch: expected a number of utterances, 1 or more; found {batch}.")
    site = this_site()
    world = _world(site.device)
    site = with_progress(site) if show and world.is_first else site
    target = open_eval_target(_place(run), [], site)
    display = Display(sys.stdout) if show and world.is_first else None
    evaluation = drawn(evaluate_target(target, on, batch, site, world), display)
    if world.is_first:
        record(target, evaluation, None)
    return evaluation


def score(references: Sequence[str], hypotheses: Sequence[str | None], normalizer: str = "none") -> Scores:
    """WER, CER and SER of hypotheses, with intervals and counts; None stands for a hypothesis that is absent.

    The `raw_` metrics beside them compare the texts as they are; the normalizer is among the conditions.
    """
    if isinstance(references, str) or isinstance(hypotheses, str):
        raise DataError("Expected lists of texts. For one, pass [text].")
    for what, texts, allowed in (("references", references, str), ("hypotheses", hypotheses, str | None)):
        wrong = [f"{each!r} at {place}" for place, each in enumerate(texts) if not isinstance(each, allowed)]
        if wrong:
            raise DataError(f"{what}: expected texts, found {wrong[0]}.")
    return score_transcripts(references, hypotheses, find(NORMALIZERS, normalizer), normalizer)


def dotted(overrides: Mapping[str, object], prefix: str = "") -> list[str]:
    """Nested settings as the words of a command line: {"train": {"steps": 5}} is train.steps=5."""
    words: list[str] = []
    for key, value in overrides.items():
        if isinstance(value, Mapping):
            words += dotted(value, f"{prefix}{key}.")
        else:
            words.append(f"{prefix}{key}={_flow(value)}")
    return words


def _flow(value: object) -> str:
    from attune.plain_yaml import inline_yaml

    return inline_yaml(list(value) if isinstance(value, tuple) else value)  # type: ignore[arg-type]


def _world(device: str) -> World:
    """The ranks this process is one of, if someone has made a process group, or itself alone."""
    if dist.is_available() and dist.is_initialized():
        place = "cuda" if dist.get_backend() == "nccl" else "cpu"
        return World(dist.get_rank(), dist.get_world_size(), torch.device(place))
    try:
        return World(0, 1, choose_device(device))
    except RuntimeError as error:  # torch knows what kinds of devices there are
        raise ConfigError(f"Unknown device {device!r}. Use auto, cpu or cuda.") from error
