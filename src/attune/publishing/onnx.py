"""Models for ONNX Runtime: written as graphs from samples on, and compared with the model they were made from."""

import importlib
import json
import logging
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from attune.contracts import FrameTimes, SpeechModel, TaskModel
from attune.decoding.search import Search, decode_batch
from attune.decoding.transducer import MAX_LABELS
from attune.errors import ModelError
from attune.families._onnx import OnnxGraph
from attune.families.ssl.model import SslModel
from attune.families.ssl.onnx import OUTPUTS, ssl_graphs
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.onnx import transducer_graphs
from attune.families.whisper.model import WhisperModel
from attune.families.whisper.onnx import whisper_graphs
from attune.files import explain_write_errors, sync, write_text
from attune.loading.pretrained import locate_model, open_pretrained
from attune.metrics import Json
from attune.publishing.conversion import ConversionCheck, synthetic_batch
from attune.publishing.onnx_model import OnnxModel
from attune.scorers import SEARCHED
from attune.site import Site
from attune.stages.eval_target import load_eval_target
from attune.types import SAMPLE_RATE, Batch, Utterance, require_hypothesis
from attune.world import World

DESCRIPTION = "model.json"
ROUNDING = 2e-2  # of states, whose values reach some tens; log-probabilities differ by far less
LARGE = 1 << 30  # bytes from which weights are written beside the graph: a file of protobuf holds 2 GiB at the most


@dataclass(frozen=True, slots=True)
class OnnxExport:
    """The files, and what the comparison found."""

    files: tuple[str, ...]
    check: ConversionCheck


def export_onnx(source: str, to: Path, site: Site) -> OnnxExport:
    """Write a model as a folder for ONNX Runtime; it appears whole, once it has been compared."""
    if to.exists():
        raise ModelError(f"{to} already exists. Choose another folder.")
    model = load_eval_target(open_pretrained(locate_model(source, site.cache)), site, World.alone()).task_model
    model.model.eval()
    graphs = graphs_of(model)
    with explain_write_errors(to, "Choose another folder.", ModelError):
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=".") as scratch:
            folder = Path(scratch) / "onnx"
            found = convert(model, graphs, folder)
            sync(folder)
            folder.rename(to)
    return OnnxExport(tuple(f"{graph.name}.onnx" for graph in graphs), found)


def graphs_of(model: TaskModel) -> list[OnnxGraph]:
    """The graphs of a model; refused where there are none."""
    if isinstance(model.model, WhisperModel):
        if model.model.window != "full":
            raise ModelError(
                "--for-onnx pads audio to 30 s, but this model was trained with model.window=trimmed. Train with full."
            )
        return whisper_graphs(model.model)
    if isinstance(model.model, TransducerModel):
        return transducer_graphs(model.model)
    if isinstance(model.model, SslModel) and model.scorer in OUTPUTS:
        return ssl_graphs(model.model)
    raise ModelError(
        "--for-onnx works with Whisper, transducers, and encoders with a head for CTC, labels, embeddings or speaker "
        "activity. This model is none of them."
    )


def convert(model: TaskModel, graphs: list[OnnxGraph], folder: Path) -> ConversionCheck:
    """Write the graphs and a description; refused where ONNX Runtime computes something else."""
    _package("onnxscript")
    runtime = _package("onnxruntime")
    folder.mkdir()
    for graph in graphs:
        _write(graph, folder / f"{graph.name}.onnx")
    sessions = {graph.name: runtime.InferenceSession(str(folder / f"{graph.name}.onnx")) for graph in graphs}
    check = compare(model, OnnxModel(model.model, sessions))
    write_text(folder / DESCRIPTION, json.dumps(_description(model, graphs, check), ensure_ascii=False))
    return check


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModelError("--for-onnx needs more packages. Run: pip install 'attune-speech[onnx]'") from error


def _write(graph: OnnxGraph, path: Path) -> None:
    axes = tuple(
        {graph.dynamic[name]: torch.export.Dim.DYNAMIC} if name in graph.dynamic else None for name in graph.inputs
    )
    for name in ("torch.onnx", "onnxscript"):  # they name every package and shortcut that they do without
        logging.getLogger(name).setLevel(logging.ERROR)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own libraries
        graph.module(*graph.inputs.values())  # tables that are kept from the first use on are made before tracing
        program = torch.onnx.export(
            graph.module,
            tuple(graph.inputs.values()),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=graph.nested(axes),
            dynamo=True,
            verbose=False,
        )
    size = sum(weight.nbytes for weight in graph.module.parameters())
    cast(Any, program).save(path, external_data=size > LARGE)


def compare(model: TaskModel, converted: OnnxModel) -> ConversionCheck:
    """Refuse a conversion that computes other scores or finds other tokens."""
    batch = synthetic_batch(model)
    with torch.inference_mode():
        largest = converted.largest_difference(batch)
        differing = _differing(model, converted, batch) if model.scorer in SEARCHED else 0
    if differing or not largest <= ROUNDING:
        raise ModelError(
            f"The converted model differs: {differing} of {len(batch.ids)} hypotheses differ, scores by up to "
            f"{largest:.1e}. Nothing was written; use another version of onnxruntime."
        )
    return ConversionCheck(len(batch.ids), largest)


def _differing(model: TaskModel, converted: OnnxModel, batch: Batch) -> int:
    theirs = replace(model, model=cast(SpeechModel, converted))
    pairs = zip(decode_batch(model, batch, Search()), decode_batch(theirs, batch, Search()), strict=True)
    return sum(require_hypothesis(one).tokens != require_hypothesis(other).tokens for one, other in pairs)


def _description(model: TaskModel, graphs: list[OnnxGraph], check: ConversionCheck) -> dict[str, Json]:
    """What a program must know to run the graphs."""
    return {
        "kind": model.scorer,
        "sample_rate": SAMPLE_RATE,
        "max_seconds": model.limits.max_seconds,
        "seconds_per_frame": model.times.seconds_per_frame if isinstance(model.times, FrameTimes) else None,
        "graphs": {
            f"{graph.name}.onnx": {"inputs": list(graph.inputs), "outputs": list(graph.outputs)} for graph in graphs
        },
        **_search_facts(model),
        "pieces": list(model.codec.pieces),
        "compared": {"samples": check.samples, "largest_difference": check.largest_difference},
    }


def _search_facts(model: TaskModel) -> Mapping[str, Json]:
    """What a greedy search of these graphs must know."""
    if isinstance(model.model, TransducerModel):
        lattice = model.model.lattice
        return {"blank": lattice.blank, "durations": list(lattice.durations), "max_labels_per_frame": MAX_LABELS}
    if isinstance(model.model, WhisperModel):
        rules = model.model.rules
        prompt = [int(token) for token in model.codec.prompt(Utterance("", 1.0))]
        languages = list(rules.languages)  # one of them stands where the prompt has -1
        never, not_first = list(rules.never), list(rules.not_first)
        return {"prompt": prompt, "languages": languages, "end": rules.end, "never": never, "not_first": not_first}
    return {"blank": 0} if model.scorer == "ctc" else {}
