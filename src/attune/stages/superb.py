"""The SUPERB benchmark of an upstream: which tasks can run, which learning rate dev prefers, and one table.

The learning rate decides a result, so each task is trained with several, and dev chooses. Test is scored once, with the
one that was chosen.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attune import catalog
from attune import recipe as recipes
from attune.files import write_text
from attune.metrics import Metric
from attune.plain_yaml import Plain, write_data
from attune.run import Run

RATES = ("1e-1", "1e-2", "1e-3", "1e-4", "1e-5")
DATA = "data/"  # how recipes write the folder of manifests


@dataclass(frozen=True, slots=True)
class SuperbTask:
    """A task of the benchmark: its recipe, where its corpus comes from, and what was published."""

    name: str
    recipe: str
    corpus: str
    published: Mapping[str, float]  # by upstream, of the recipe's primary metric
    learns: bool = True  # False: there is nothing to choose a learning rate for


def _published(*values: float) -> dict[str, float]:
    return dict(zip(("fbank", "wav2vec2", "hubert", "wavlm"), values, strict=True))  # base models; WavLM base+


TASKS = (
    SuperbTask("PR", "superb-pr", "LibriSpeech, openslr.org/12", _published(82.01, 5.74, 5.41, 3.92)),
    SuperbTask("KS", "superb-ks", "Speech Commands v0.01 and its test set", _published(41.38, 96.23, 96.30, 97.37)),
    SuperbTask("IC", "superb-ic", "Fluent Speech Commands, fluent.ai", _published(9.65, 92.35, 98.34, 99.00)),
    SuperbTask("SID", "superb-sid", "VoxCeleb1, robots.ox.ac.uk/~vgg", _published(20.06, 75.18, 81.42, 89.42)),
    SuperbTask("ER", "superb-er", "IEMOCAP, sail.usc.edu/iemocap (on request)", _published(48.24, 63.43, 64.92, 68.65)),
    SuperbTask("ASR", "superb-asr", "LibriSpeech, openslr.org/12", _published(23.18, 6.43, 6.42, 5.59)),
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
    """One training of a task: its run, and its overrides."""

    task: SuperbTask
    value: str
    run: Path
    words: tuple[str, ...]

    def dev(self) -> float:
        """The best dev score, NaN where there is none yet."""
        best = Run(self.run).best()
        return best.value if best else math.nan


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task came to: the trial that dev chose, and its test scores."""

    task: SuperbTask
    metric: Metric
    chosen: Trial
    scores: Mapping[str, Plain]

    @property
    def value(self) -> float:
        """The test score of the primary metric."""
        return _entry(self.scores, self.metric.name)[0]

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval."""
        return _entry(self.scores, self.metric.name)[1]


def write_recipe(task: SuperbTask, data: Path, to: Path) -> Path:
    """The shipped recipe with its manifests in `data`."""
    plain = recipes.to_plain(recipes.load(_shipped(task.recipe)).recipe)
    path = to / task.recipe / "recipe.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    moved = _moved(plain, data.absolute())
    write_text(path, write_data(moved if isinstance(moved, dict) else {}))
    return path


def missing_files(recipe: Path) -> list[str]:
    """The manifests that a recipe names and that are not there."""
    data = recipes.load(recipe).recipe.data
    return [name for name in (*data.train, *data.dev, *data.test) if not Path(name).exists()]


def trials(task: SuperbTask, folder: Path, rates: Sequence[str]) -> list[Trial]:
    """A run for each learning rate; one where nothing is learned."""
    if not task.learns:
        return [Trial(task, "", folder / "run", (f"run={folder / 'run'}",))]
    return [
        Trial(task, rate, folder / f"lr-{rate}", (f"run={folder / f'lr-{rate}'}", f"optimizer.lr={rate}"))
        for rate in rates
    ]


def metric_of(recipe: Path) -> Metric:
    """The primary metric of a recipe's task."""
    return catalog.find(catalog.TASKS, recipes.load(recipe).recipe.task.name).metrics[0]


def chosen(found: Sequence[Trial], metric: Metric) -> Trial:
    """The trial that is best on dev."""
    best = found[0]
    for trial in found[1:]:
        best = trial if metric.is_better(trial.dev(), best.dev()) else best
    return best


def table(results: Sequence[TaskResult], upstream: str) -> str:
    """Every task with its interval, the learning rate, and the published figure, as Markdown."""
    lines = ["| task | metric | test | 95 % interval | dev chose | published |", "|---|---|---|---|---|---|"]
    for each in results:
        low_high = each.interval
        interval = f"{low_high[0]:.2f} to {low_high[1]:.2f}" if low_high else "–"
        published = each.task.published.get(upstream)
        lines.append(
            f"| {each.task.name} | {each.metric.name} {each.metric.unit} | {each.value:.2f} | {interval} | "
            f"{f'lr {each.chosen.value}' if each.chosen.value else '–'} | {'–' if published is None else published} |"
        )
    return "\n".join(lines) + "\n"


def radar(results: Sequence[TaskResult], upstream: str) -> str:
    """The scores on one axis each, as SVG: the centre is 0, the rim 100; errors count from the rim inwards."""
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
        yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{each.task.name} {each.value:.1f}</text>'


def _corners(results: Sequence[TaskResult], centre: float, reach: float) -> Iterator[tuple[float, float]]:
    for number, each in enumerate(results):
        percent = min(100.0, max(0.0, each.value if each.metric.unit == "%" else 100 * each.value))
        share = percent / 100 if each.metric.higher_is_better else 1 - percent / 100
        yield _point(number, len(results), centre, reach * share)


def _point(number: int, count: int, centre: float, reach: float) -> tuple[float, float]:
    angle = 2 * math.pi * number / max(1, count) - math.pi / 2
    return centre + reach * math.cos(angle), centre + reach * math.sin(angle)


def _entry(scores: Mapping[str, Plain], name: str) -> tuple[float, tuple[float, float] | None]:
    values = scores.get("scores")
    found = values.get(name) if isinstance(values, dict) else None
    if not isinstance(found, dict):
        return math.nan, None
    value, low, high = (found.get(key) for key in ("value", "low", "high"))
    is_known = isinstance(low, int | float) and isinstance(high, int | float)
    return _number(value), (_number(low), _number(high)) if is_known else None


def _number(value: Plain) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


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


def _shipped(name: str) -> Path:
    return Path(recipes.__file__).with_name("recipes") / f"{name}.yaml"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
