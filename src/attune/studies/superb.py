"""The SUPERB benchmark of an upstream: which tasks can run, what dev prefers, and one table.

The learning rate decides a result, so each task is trained with several; where nothing is learned, each layer is tried.
All of these are points of a sweep, and dev chooses. Test is scored once, with what was chosen.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attune import catalog
from attune import recipe as recipes
from attune.files import write_text
from attune.metrics import Metric
from attune.plain_yaml import Plain, inline_yaml, read_data, write_data
from attune.recipe import Recipe
from attune.run import Run
from attune.site import Site
from attune.stages import drain
from attune.stages.eval_target import evaluate_target, open_eval_target, record
from attune.studies.folds import write_folds
from attune.studies.sweep import PointResult, SweepPoint
from attune.world import World, choose_device

RATES = ("1e-1", "1e-2", "1e-3", "1e-4", "1e-5")
RIM = {"%": 100.0, "dB": 20.0, "bleu": 100.0, "pesq": 4.5}  # of the radar plot, by unit or metric; of others 1
DATA = "data/"  # how recipes write the folder of manifests


@dataclass(frozen=True, slots=True)
class SuperbTask:
    """A task of the benchmark: its recipe, where its corpus comes from, and what was published."""

    name: str
    recipe: str
    corpus: str
    published: Mapping[str, float]  # by upstream, of the recipe's metric
    learns: bool = True  # False: layers are tried instead of learning rates
    folds: tuple[str, ...] = ()  # manifests of a cross-validation, whose mean counts


def _published(*values: float) -> dict[str, float]:
    return dict(zip(("fbank", "wav2vec2", "hubert", "wavlm"), values, strict=True))  # base models; WavLM base+


SESSIONS = tuple(f"data/iemocap/session{number}.jsonl" for number in range(1, 6))
IEMOCAP = "IEMOCAP, sail.usc.edu/iemocap (on request)"
LEXICONS = "LibriSpeech, openslr.org/12, with the lexicons of github.com/s3prl/s3prl (downstream/ctc/lexicon)"
VOICES = "Common Voice 7, commonvoice.mozilla.org"
TASKS = (
    SuperbTask("PR", "superb-pr", LEXICONS, _published(82.01, 5.74, 5.41, 3.92)),
    SuperbTask("KS", "superb-ks", "Speech Commands v0.01 and its test set", _published(41.38, 96.23, 96.30, 97.37)),
    SuperbTask("IC", "superb-ic", "Fluent Speech Commands, fluent.ai", _published(9.65, 92.35, 98.34, 99.00)),
    SuperbTask("SID", "superb-sid", "VoxCeleb1, robots.ox.ac.uk/~vgg", _published(20.06, 75.18, 81.42, 89.42)),
    SuperbTask("ER", "superb-er", IEMOCAP, _published(48.24, 63.43, 64.92, 68.65), folds=SESSIONS),
    SuperbTask("ASR", "superb-asr", "LibriSpeech, openslr.org/12", _published(23.18, 6.43, 6.42, 5.59)),
    SuperbTask("OOD-es", "superb-ood-asr", VOICES, {}),
    SuperbTask("OOD-ar", "superb-ood-asr-ar", VOICES, {}),
    SuperbTask("OOD-zh", "superb-ood-asr-zh", VOICES, {}),
    SuperbTask("OOD-spon", "superb-ood-asr-sbcsae", "SBCSAE as S3PRL preprocessed it", {}),
    SuperbTask("QbE", "superb-qbe", "QUESST 2014, fit.vutbr.cz", _published(0.0058, 0.0233, 0.0736, 0.0988), False),
    SuperbTask("SF", "superb-sf", "Audio SNIPS as S3PRL prepared it", _published(69.64, 88.30, 88.53, 90.58)),
    SuperbTask("ASV", "superb-asv", "VoxCeleb1 with veri_test.txt", _published(9.56, 6.02, 5.11, 4.07)),
    SuperbTask("SD", "superb-sd", "Libri2Mix, github.com/s3prl/LibriMix", _published(10.05, 6.08, 5.88, 3.50)),
    SuperbTask("ST", "superb-st", "CoVoST 2 over Common Voice 4", {}),
    SuperbTask("SE", "superb-se", "VoiceBank-DEMAND, datashare.ed.ac.uk", {}),
    SuperbTask("SS", "superb-ss", "Libri2Mix, github.com/s3prl/LibriMix", {}),
    SuperbTask("VC", "superb-vc", "VCC 2020, github.com/nii-yamagishilab/VCC2020-database", {}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to train a task: a learning rate or a layer, and its runs, one for each fold."""

    task: SuperbTask
    value: str  # lr 1e-3
    points: tuple[SweepPoint, ...]
    tests: tuple[tuple[str, ...], ...]  # the test manifests of each point

    def dev(self, results: Mapping[str, PointResult], metric: Metric) -> float:
        """The mean dev score over folds, NaN where one is missing."""
        found = [results[point.name].scores for point in self.points]
        values = [scores.values[metric.name].value if scores else math.nan for scores in found]
        return sum(values) / len(values)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task came to: what dev chose, and the test score with its interval."""

    task: SuperbTask
    metric: Metric
    chosen: str
    value: float
    interval: tuple[float, float]
    name: str  # in the table


def write_recipe(task: SuperbTask, data: Path, to: Path) -> Path:
    """The shipped recipe with its manifests in `data`."""
    plain = recipes.to_plain(recipes.load(_shipped(task.recipe)).recipe)
    path = to / task.recipe / "recipe.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    moved = _moved(plain, data.absolute())
    write_text(path, write_data(moved if isinstance(moved, dict) else {}))
    return path


def missing_files(task: SuperbTask, recipe: Path, data: Path, words: Sequence[str]) -> list[str]:
    """The manifests, lexicons and lists that a task needs and that are not there."""
    own = recipes.load(recipe, words).recipe
    manifests = [*map(str, _folds(task, data))] or [*own.data.train, *own.data.dev, *own.data.test]
    others = [name for name in _strings(recipes.to_plain(own)["task"]) if name.startswith(f"{data.absolute()}/")]
    return [name for name in (*manifests, *others) if not Path(name).exists()]


def trials(task: SuperbTask, recipe: Path, data: Path, words: Sequence[str], values: Sequence[str]) -> list[Trial]:
    """A trial for each learning rate, or for each layer where nothing is learned."""
    folder, key = recipe.parent, "optimizer.lr" if task.learns else "model.layers"
    short = "lr" if task.learns else "layer"
    found = []
    for value in values:
        run = folder / f"{short}-{value}"
        own = [*words, f"{key}={value}", f"run={inline_yaml(str(run))}"]
        loaded = recipes.load(recipe, own).recipe
        parts = list(_parts(task, loaded, run, data))
        points = tuple(
            SweepPoint(recipe, (*own[:-1], *more), f"{task.name} {short} {value}{name}", place)
            for name, place, more, _ in parts
        )
        found.append(Trial(task, f"{short} {value}", points, tuple(test for *_, test in parts)))
    return found


def _parts(
    task: SuperbTask, recipe: Recipe, run: Path, data: Path
) -> Iterator[tuple[str, Path, tuple[str, ...], tuple[str, ...]]]:
    """The runs of a trial: a name, the folder, overrides, and the test manifests."""
    folds = _folds(task, data)
    if not folds:
        yield "", run, (), recipe.data.test
        return
    for manifest, fold in zip(folds, write_folds(recipe, folds), strict=True):
        yield f" {fold.name}", fold.run, fold.overrides[1:], (str(manifest),)


def _folds(task: SuperbTask, data: Path) -> tuple[Path, ...]:
    return tuple(data.absolute() / name.removeprefix(DATA) for name in task.folds)


def metric_of(recipe: Path) -> Metric:
    """The metric that a recipe chooses by."""
    loaded = recipes.load(recipe).recipe
    known = catalog.find(catalog.TASKS, loaded.task.name).metrics
    kept = (loaded.train.keep_best or "").removeprefix("dev.")
    return next((metric for metric in known if metric.name == kept), known[0])


def chosen(found: Sequence[Trial], results: Mapping[str, PointResult], metric: Metric) -> Trial | None:
    """The trial that is best on dev; None where none has a score."""
    best: Trial | None = None
    for trial in found:
        value = trial.dev(results, metric)
        if math.isfinite(value) and (best is None or metric.is_better(value, best.dev(results, metric))):
            best = trial
    return best


def score_on_test(trial: Trial, metric: Metric, site: Site, name: str, search: Sequence[str] = ()) -> TaskResult:
    """The test score of what dev chose, once: kept beside its run, with the predictions."""
    scores = [
        _test_score(point, tests, metric, site, name, search)
        for point, tests in zip(trial.points, trial.tests, strict=True)
    ]
    value = sum(each[0] for each in scores) / len(scores)
    # Folds are independent: the half-widths of their intervals add up as deviations do.
    low, high = (math.hypot(*(each[0] - each[side] for each in scores)) / len(scores) for side in (1, 2))
    return TaskResult(trial.task, metric, trial.value, value, (value - low, value + high), name)


def _test_score(
    point: SweepPoint, tests: Sequence[str], metric: Metric, site: Site, name: str, search: Sequence[str]
) -> tuple[float, float, float]:
    kept, basis = point.run / f"{name}-test.json", _basis(point, tests, search)
    if not kept.exists() or json.loads(kept.read_text()).get("basis") != basis:
        target = open_eval_target(str(point.run), [f"data.test={inline_yaml(list(tests))}", *search], site)
        world = World.alone(str(choose_device(site.device)))
        out = kept.with_suffix(".jsonl")
        found = drain(evaluate_target(target, "test", None, site, world, out))
        record(target, found, out)
        write_text(kept, json.dumps({**found.as_json(), "basis": basis}, indent=1) + "\n")
    score = json.loads(kept.read_text())["scores"][metric.name]
    return tuple(math.nan if score[key] is None else float(score[key]) for key in ("value", "low", "high"))  # type: ignore[return-value]


def _basis(point: SweepPoint, tests: Sequence[str], search: Sequence[str]) -> dict[str, object]:
    """What a test score is of: the checkpoint, the search, and the files as they are now."""
    best, task = Run(point.run).best(), recipes.to_plain(point.recipe())["task"]
    plain = [read_data(word.partition("=")[2], word) for word in search]
    files = dict.fromkeys((*tests, *_strings(task), *_strings(plain)))
    versions = {name: [Path(name).stat().st_size, Path(name).stat().st_mtime_ns] for name in files if _is_file(name)}
    return {"step": best.step if best else None, "search": list(search), "files": versions}


def _is_file(name: str) -> bool:
    return "/" in name and Path(name).is_file()


def table(results: Sequence[TaskResult], upstream: str) -> str:
    """Every task with its interval, what dev chose, and the published figure, as Markdown."""
    lines = ["| task | metric | test | 95 % interval | dev chose | published |", "|---|---|---|---|---|---|"]
    for each in results:
        digits = 4 if _rim(each.metric) == 1 else 2
        value, low, high = (f"{number:.{digits}f}" for number in (each.value, *each.interval))
        metric = f"{each.metric.name} {each.metric.unit}".strip()
        published = each.task.published.get(upstream) if each.name == each.task.name else None
        lines.append(
            f"| {each.name} | {metric} | {value} | {low} to {high} | {each.chosen} | "
            f"{'–' if published is None else published} |"
        )
    return "\n".join(lines) + "\n"


def radar(results: Sequence[TaskResult], upstream: str) -> str:
    """One axis for each score, as SVG: 0 in the centre, RIM at the rim; errors from the rim inwards."""
    size, centre, reach = 480, 240.0, 180.0
    parts = list(_axes(results, centre, reach))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _corners(results, centre, reach))
    shape = f'<polygon points="{points}" fill="#2a6fdb" fill-opacity="0.25" stroke="#2a6fdb" stroke-width="2"/>'
    title = f'<text x="{centre}" y="20" text-anchor="middle" font-size="15">SUPERB: {_escaped(upstream)}</text>'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, title, *parts, shape, "</svg>"]) + "\n"


def _axes(results: Sequence[TaskResult], centre: float, reach: float) -> Iterator[str]:
    for number, each in enumerate(results):
        x, y = _point(number, len(results), centre, reach)
        yield f'<line x1="{centre}" y1="{centre}" x2="{x:.1f}" y2="{y:.1f}" stroke="#bbb"/>'
        x, y = _point(number, len(results), centre, reach + 22)
        yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{each.name} {each.value:.3g}</text>'


def _corners(results: Sequence[TaskResult], centre: float, reach: float) -> Iterator[tuple[float, float]]:
    for number, each in enumerate(results):
        part = min(1.0, max(0.0, each.value / _rim(each.metric)))
        share = part if each.metric.higher_is_better else 1 - part
        yield _point(number, len(results), centre, reach * share)


def _rim(metric: Metric) -> float:
    return RIM.get(metric.unit or metric.name, 1.0)


def _point(number: int, count: int, centre: float, reach: float) -> tuple[float, float]:
    angle = 2 * math.pi * number / max(1, count) - math.pi / 2
    return centre + reach * math.cos(angle), centre + reach * math.sin(angle)


def _moved(value: Plain, folder: Path) -> Plain:
    """The values with `data/…` below another folder."""
    match value:
        case str() if value.startswith(DATA):
            return str(folder / value.removeprefix(DATA))
        case list():
            return [_moved(each, folder) for each in value]
        case dict():
            return {key: _moved(each, folder) for key, each in value.items()}
    return value


def _strings(value: Plain) -> Iterator[str]:
    """All text in values."""
    match value:
        case str():
            yield value
        case list():
            yield from (text for each in value for text in _strings(each))
        case dict():
            yield from (text for each in value.values() for text in _strings(each))


def _shipped(name: str) -> Path:
    return Path(recipes.__file__).with_name("recipes") / f"{name}.yaml"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
