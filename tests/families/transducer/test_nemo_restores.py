"""NeMo itself restores what attune exports; it is no dependency of the tests (`pip install nemo_toolkit[asr]`)."""

import numpy as np
import pytest
import torch

from attune.corpora import open_manifest
from attune.families.transducer import FAMILY, TransducerConfig
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.testing import make_corpus

from tiny import batch_of

KINDS = {
    "contextnet": {"encoder": "contextnet"},
    "conformer": {"encoder": "conformer"},
    "fastconformer": {"encoder": "fastconformer"},
    "fastconformer-tdt": {"encoder": "fastconformer", "durations": (0, 1, 2, 3, 4)},
    "stateless": {"encoder": "contextnet", "prediction": "stateless"},
}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    corpus = list(open_manifest(make_corpus(folder / "corpus", utterances=24), folder / "index"))
    (folder / "tokens").mkdir()
    settings = TranscribeConfig(tokens="bpe", vocabulary=40)
    Transcribe.prepare(settings, corpus, folder / "tokens")
    return folder / "tokens", Transcribe(settings, folder / "tokens")


@pytest.mark.parametrize("kind", KINDS)
def test_nemo_restores_what_attune_exports(task, tmp_path, kind):
    models = pytest.importorskip("nemo.collections.asr.models", reason="NeMo is not installed")
    files, spoken = task
    torch.manual_seed(5)
    model = FAMILY.build(TransducerConfig(size="dummy", tokens="task", **KINDS[kind]), spoken, tmp_path).model.eval()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/task").symlink_to(files)
    FAMILY.exporters.beside(model, tmp_path, tmp_path / "out")
    theirs = models.ASRModel.restore_from(str(tmp_path / "out/model.nemo"), map_location="cpu", strict=True).eval()
    audio = np.random.default_rng(1).standard_normal(23_456).astype(np.float32) * 0.1
    with torch.inference_mode():
        ours, lengths = model.encode(batch_of([("a", audio, ())]))
        signal = {"input_signal": torch.from_numpy(audio)[None], "input_signal_length": torch.tensor([len(audio)])}
        frames, counts = theirs(**signal)
        predicted, _ = theirs.decoder.predict(torch.tensor([[3, 1, 2]]), add_sos=True)
        joined = theirs.joint.joint(frames.transpose(1, 2)[:, : int(counts)], predicted)
        parts = model.joint.project(ours, model.decoder.prediction(torch.tensor([[3, 1, 2]])))
        hidden = torch.relu(parts[0][:, :, None] + parts[1][:, None])
        logits = torch.nn.functional.linear(hidden, model.joint.output.weight, model.joint.output.bias)
    assert int(counts) == int(lengths)
    assert torch.allclose(frames[0].T[: int(counts)], ours[0], atol=1e-4)
    tokens = len(model.pieces) + 1  # durations are normalized by themselves
    difference = joined[..., :tokens].log_softmax(-1) - logits[..., :tokens].log_softmax(-1)
    assert float(difference.abs().max()) < 1e-4
