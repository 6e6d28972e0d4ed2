"""Models for ONNX Runtime: what is written is compared, runs on recordings of any length, and says how."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import attune
from attune.api import load, load_audio
from attune.batches.collate import collate
from attune.decoding.search import Search, decode_batch
from attune.errors import ModelError
from attune.families.transducer import FAMILY, TransducerConfig
from attune.publishing.onnx import compare, convert, export_onnx, graphs_of
from attune.publishing.onnx_model import OnnxModel
from attune.site import this_site
from attune.types import LoadedRow, Utterance

from tiny_whisper import write_whisper

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.recipe

DEMO = Path(attune.__file__).parent / "demo"


def opened(folder, model):
    sessions = {path.stem: onnxruntime.InferenceSession(str(path)) for path in folder.glob("*.onnx")}
    return OnnxModel(model, sessions)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx") / "demo"
    return export_onnx(str(DEMO / "model"), folder, this_site(device="cpu")), folder


def test_a_ctc_model_finds_the_same_words_in_recordings_of_other_lengths(demo):
    exported, folder = demo
    assert exported.files == ("model.onnx",)
    assert 0 < exported.check.largest_difference < 1e-3
    recognizer = load(DEMO / "model", "cpu")
    audio = [load_audio(str(path)) for path in sorted((DEMO / "audio").glob("*.opus"))[:3]]
    described = json.loads((folder / "model.json").read_text())
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    for samples in audio:  # as a program without attune does it
        (log_probs,) = session.run(None, {"audio": samples[None]})
        best = log_probs[0].argmax(1)
        kept = [int(token) for token, before in zip(best, [-1, *best[:-1]], strict=True) if token != before]
        text = "".join(described["pieces"][token] for token in kept if token != described["blank"])
        assert text.replace("▁", " ").strip() == recognizer.transcribe(samples)


def test_a_changed_model_is_noticed_and_a_taken_folder_refused(demo):
    _, folder = demo
    model = load(DEMO / "model", "cpu").loaded.task_model
    with torch.no_grad():
        model.model.head.output.bias[0] += 1
    with pytest.raises(ModelError, match="converted model differs"):
        compare(model, opened(folder, model.model))
    with pytest.raises(ModelError, match="already exists"):
        export_onnx(str(DEMO / "model"), folder, this_site(device="cpu"))


def test_a_whisper_decodes_the_same_tokens_step_by_step_also_with_a_beam(tmp_path):
    model = load(write_whisper(tmp_path / "whisper"), "cpu").loaded.task_model
    found = convert(model, graphs_of(model), tmp_path / "onnx")
    assert 0 < found.largest_difference < 1e-3
    noise = np.random.default_rng(1).normal(scale=0.1, size=(2, 21_013)).astype(np.float32)
    batch = collate([LoadedRow(str(row), noise[row], model.codec.prompt(Utterance("", 1.0))) for row in range(2)])
    converted = replace(model, model=opened(tmp_path / "onnx", model.model))
    for search in (Search(), Search(kind="beam", beam=3)):
        with torch.inference_mode():
            ours, theirs = decode_batch(model, batch, search), decode_batch(converted, batch, search)
        assert [each.tokens for each in ours] == [each.tokens for each in theirs]


def test_a_transducer_with_durations_is_three_graphs(tmp_path):
    task = load(DEMO / "model", "cpu").loaded.task
    torch.manual_seed(3)
    settings = TransducerConfig(encoder="fastconformer", size="dummy", tokens="task", durations=(0, 1, 2))
    model = FAMILY.build(settings, task, tmp_path)
    model.model.eval()
    with torch.no_grad():
        model.model.joint.output.weight *= 8  # a random model's tokens are nearly equal
    found = convert(model, graphs_of(model), tmp_path / "onnx")
    assert found.largest_difference < 1e-3
    described = json.loads((tmp_path / "onnx" / "model.json").read_text())
    assert described["durations"] == [0, 1, 2]
    assert set(described["graphs"]) == {"encoder.onnx", "predictor.onnx", "joint.onnx"}


def test_what_has_no_graphs_is_refused(tmp_path):
    model = load(DEMO / "model", "cpu").loaded.task_model
    with pytest.raises(ModelError, match="works with Whisper"):
        graphs_of(replace(model, scorer="waveform"))
    whisper = load(write_whisper(tmp_path / "whisper"), "cpu").loaded.task_model
    whisper.model.window = "trimmed"
    with pytest.raises(ModelError, match="trimmed"):
        graphs_of(whisper)
