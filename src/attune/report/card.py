"""The model card: what a model is, how good it is, and how to make it again, as the Hub and people read it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attune.report.tables import metric_label, with_unit, without_repeats

_HUB_NAME = re.compile(r"hf://(?:models/)?([\w.-]+/[\w.-]+?)(?:@[^/]+)?(?:/.*)?")
_HUB_DATA = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+?)(?:@[^/]+)?(?:/.*)?")

BAR = 40  # characters of the longest
LAYERS_FILE = "layers.svg"
LAYERS_SHOWN = (
    f"The head uses a weighted sum of the layers; 0 is nearest the input.\n\n![Weight of each layer]({LAYERS_FILE})"
)
_TRIMMED = (
    "It was trained with `model.window: trimmed`, on audio without padding. transformers pads to 30 s, which "
    "this model was not trained for: expect higher error rates there."
)


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card is made of."""

    name: str
    address: str  # where it is put
    family: str
    task: str
    pipeline_tag: str | None  # the Hub's name for the task, where it has one
    method: str | None  # of a loaded model, where there is one for the task
    language: str | None
    weights: str | None
    loads_in_transformers: bool
    data: Mapping[str, Sequence[str]]  # manifests by split
    scores: Mapping[str, Any]  # as in scores.json
    settings: Mapping[str, str]  # of the training, worth showing
    environment: Mapping[str, Any]  # as in environment.json
    command: str


def model_card(facts: CardFacts) -> str:
    """A README.md for a model repository."""
    front = "\n".join(_front_matter(facts))
    parts = [
        f"# {facts.name}\n\n{_introduction(facts)}",
        _scores(facts.scores),
        _layers(facts.scores),
        _data(facts.data),
        _training(facts),
        _hardware(facts.environment),
        _again(facts),
        _use(facts),
    ]
    return f"---\n{front}\n---\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(facts: CardFacts) -> Iterator[str]:
    """YAML, every text of it quoted as JSON, which YAML reads as it is."""
    yield f"library_name: {'transformers' if facts.loads_in_transformers else 'attune'}"
    if facts.pipeline_tag:
        yield f"pipeline_tag: {facts.pipeline_tag}"
    if facts.language and re.fullmatch(r"[a-z]{2,3}", facts.language):
        yield f"language: {json.dumps(facts.language)}"
    yield f"tags: {json.dumps(['attune', facts.family, 'speech'])}"
    base = _HUB_NAME.fullmatch(facts.weights or "")
    if base and not facts.weights.startswith("hf://datasets/"):  # type: ignore[union-attr]
        yield f"base_model: {json.dumps(base[1])}"
    found = (_HUB_DATA.fullmatch(source) for sources in facts.data.values() for source in sources)
    hub_data = sorted({match[1] for match in found if match})
    if hub_data:
        yield f"datasets: {json.dumps(hub_data)}"
    results = [result for split, scored in facts.scores.items() for result in _results(facts, split, scored)]
    if results:
        yield f"metrics: {json.dumps(sorted({metric['type'] for each in results for metric in each['metrics']}))}"
        yield f"model-index: {json.dumps([{'name': facts.name, 'results': results}], ensure_ascii=False)}"


def _results(facts: CardFacts, split: str, scored: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    values = {name: score for name, score in _shown_scores(scored).items() if not name.startswith("raw_")}
    if facts.pipeline_tag is None or not values:
        return
    source = ", ".join(facts.data.get(split, ())) or split
    kept = [
        {"type": name, "name": metric_label(name), "value": round(each["value"], 4)} for name, each in values.items()
    ]
    yield {"task": {"type": facts.pipeline_tag}, "dataset": {"name": source, "type": split}, "metrics": kept}


def _introduction(facts: CardFacts) -> str:
    origin = f", fine-tuned from `{facts.weights}`" if facts.weights else ""
    language = f" Language: {facts.language}." if facts.language else ""
    window = f"\n\n{_TRIMMED}" if facts.settings.get("model.window") == "trimmed" else ""
    return f"A `{facts.family}` model for the task `{facts.task}`{origin}.{language} Made with attune.{window}"


def _scores(scores: Mapping[str, Any]) -> str:
    conditions = list(dict.fromkeys(name for scored in scores.values() for name in _conditions(scored)))
    rows = [
        [split, metric_label(name), *_value_cells(each), *_about(scored, conditions)]
        for split, scored in scores.items()
        for name, each in _shown_scores(scored).items()
    ]
    if not rows:
        return ""
    heads = ["set", "metric", "value", "95 % interval", "utterances", *conditions, "search"]
    notes = ["Intervals are bootstrap intervals."]
    if any(name.startswith("raw_") for scored in scores.values() for name in _shown_scores(scored)):
        notes.append("Raw metrics compare the texts as written.")
    table = [_row(heads), _row(["---"] * len(heads)), *map(_row, rows)]
    return "## Scores\n\n" + "\n".join(table) + f"\n\n{' '.join(notes)}"


def layer_plot(scores: Mapping[str, Any]) -> str | None:
    """How much each layer of the encoder counts, as SVG; None where there are not several."""
    found = _layer_weights(scores)
    if len(found) < 2:
        return None
    most, step, high = max(found.values()), 32, 160
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {step * len(found)} {high + 40}" font-size="11"'
    parts = [f'{head} font-family="sans-serif" text-anchor="middle">', "<title>Weight of each layer</title>"]
    for place, (layer, weight) in enumerate(found.items()):
        tall, middle = high * weight / most, step * (place + 0.5)
        top = 20 + high - tall
        parts += [
            f'<rect x="{middle - 12:g}" y="{top:.1f}" width="24" height="{tall:.1f}" fill="#2a6fdb"/>',
            f'<text x="{middle:g}" y="{top - 4:.1f}">{weight:.2f}</text>',
            f'<text x="{middle:g}" y="{high + 35}">{int(layer)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _layer_weights(scores: Mapping[str, Any]) -> Mapping[str, float]:
    return next((scored["layer_weights"] for scored in scores.values() if scored.get("layer_weights")), {})


def _layers(scores: Mapping[str, Any]) -> str:
    """How much each layer of the encoder counts, where there are several: a picture, and a bar for each."""
    found = _layer_weights(scores)
    if len(found) < 2:
        return ""
    most = max(found.values())
    bars = [
        f"{layer:>5}  {weight:6.3f}  {'█' * round(BAR * weight / most)}".rstrip() for layer, weight in found.items()
    ]
    return "\n".join(["## Layers", "", LAYERS_SHOWN, "", "```", *bars, "```"])


def _value_cells(score: Mapping[str, Any]) -> list[str]:
    unit = score.get("unit", "%")  # runs of before units were declared had no other
    has_interval = score["low"] is not None and score["high"] is not None
    return [with_unit(score["value"], unit), f"{score['low']:.2f} – {score['high']:.2f}" if has_interval else ""]


def _shown_scores(scored: Mapping[str, Any]) -> dict[str, Any]:
    names = without_repeats(scored["scores"], _conditions(scored))
    return {name: scored["scores"][name] for name in names if scored["scores"][name]}


def _conditions(scored: Mapping[str, Any]) -> dict[str, str]:
    """What the scores hold under; older runs have a normalizer alone."""
    if "conditions" in scored:
        return dict(scored["conditions"])
    return {"normalizer": scored["normalizer"]} if "normalizer" in scored else {}


def _about(scored: Mapping[str, Any], conditions: Sequence[str]) -> list[str]:
    search, counts, known = scored.get("search") or {}, scored["counts"], _conditions(scored)
    beam = f" {search['beam']}" if search.get("kind") == "beam" else ""
    # Older runs have the number of utterances under the names of their counts alone.
    older = next((counts[name] for name in ("num_scored_sents", "num_scored") if name in counts), None)
    utterances = scored.get("utterances", older)
    number = "" if utterances is None else f"{utterances:,}"
    return [number, *(known.get(name, "") for name in conditions), f"{search.get('kind', '')}{beam}"]


def _data(data: Mapping[str, Sequence[str]]) -> str:
    named = {split: ", ".join(f"`{source}`" for source in sources) for split, sources in data.items() if sources}
    lines = [f"- {split}: {sources}" for split, sources in named.items()]
    exact = "Their exact versions are in `training/sources.lock.json`."
    return "\n".join(["## Data", "", *lines, "", exact]) if lines else ""


def _training(facts: CardFacts) -> str:
    if not facts.settings:
        return ""
    table = [_row(["setting", "value"]), _row(["---", "---"])]
    rows = [_row([f"`{name}`", value]) for name, value in facts.settings.items()]
    end = "Full recipe: `training/recipe.yaml`. Log: `training/log.jsonl`."
    return "\n".join(["## Training", "", *table, *rows, "", end])


def _hardware(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    devices = ", ".join(environment.get("devices") or ()) or "no GPU"
    packages = ", ".join(f"{name} {version}" for name, version in (environment.get("packages") or {}).items())
    machine = f"{devices}; {environment.get('cores')} CPU cores; {environment.get('platform')}"
    return f"## Hardware and software\n\n{machine}. Python {environment.get('python')}, {packages}."


def _again(facts: CardFacts) -> str:
    if not facts.command:
        return ""
    return (
        f"## How to reproduce it\n\n```bash\nattune pull {facts.address} --to {facts.name} && cd {facts.name}\n"
        "attune fetch training/recipe.yaml --locked training/sources.lock.json\n"
        f"attune train training/recipe.yaml run=runs/again\n```\n\nTrained with `{facts.command}`."
    )


def _use(facts: CardFacts) -> str:
    if facts.method is None:
        return f"## How to use it\n\n```bash\nattune evaluate {facts.address} --on YOUR_MANIFEST.jsonl\n```"
    return (
        "## How to use it\n\n```python\nimport attune\n\n"
        f'model = attune.load("{facts.address}")  # or the folder it was pulled to\n'
        f'print(model.{facts.method}("recording.wav"))\n```'
    )


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
