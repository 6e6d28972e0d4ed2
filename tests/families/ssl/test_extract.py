"""Upstreams in Python, and the guide followed to the letter."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import attune
from attune.corpora import open_manifest
from attune.errors import ConfigError, DataError
from attune.families.ssl import FAMILY, SslConfig
from attune.tasks.classify import Classify, ClassifyConfig
from attune.testing import make_corpus

from tiny_upstreams import make_encoder

GUIDE = Path(__file__).parents[3] / "docs/guides/upstreams.md"


def test_features_of_recordings_do_not_depend_on_those_beside_them(tmp_path):
    make_encoder("wavlm").save_pretrained(tmp_path)
    upstream = attune.load_upstream("wavlm", tmp_path, device="cpu")
    assert (upstream.stride, upstream.widths) == (320, (32,) * 4)
    generator = np.random.default_rng(1)
    recordings = [generator.standard_normal(size).astype(np.float32) for size in (800, 16_000, 5000)]
    together, alone = upstream.layers(recordings), upstream.layers(recordings, batch=1)
    for one, other in zip(together, alone, strict=True):
        assert all((a - b).abs().max() < 1e-5 for a, b in zip(one, other, strict=True))
    assert [layers[0].shape for layers in together] == [(2, 32), (49, 32), (15, 32)]


def test_what_cannot_be_a_recording_is_refused():
    with pytest.raises(DataError, match=r"Recording 0 has the shape \(2, 5\); expected mono"):
        attune.load_upstream("fbank", device="cpu").layers([np.zeros((2, 5), np.float32)])
    for audio in ([0.0] * 800, np.zeros(800, np.int16)):
        with pytest.raises(DataError, match="Recording 0 is no array of floats from -1 to 1"):
            attune.load_upstream("fbank", device="cpu").layers([audio])
    with pytest.raises(ConfigError, match="'fbank' has no weights"):
        attune.load_upstream("fbank", "somewhere", device="cpu")


def test_the_upstream_of_the_guide_keeps_every_promise(tmp_path, monkeypatch):
    section = GUIDE.read_text(encoding="utf-8").partition("## Add an upstream")[2]
    plug_in, check = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (tmp_path / "my_upstreams").mkdir()
    (tmp_path / "my_upstreams/energy.py").write_text(plug_in)
    monkeypatch.syspath_prepend(tmp_path)
    utterances = list(open_manifest(make_corpus(tmp_path / "corpus", utterances=4), tmp_path / "index"))
    config = ClassifyConfig(label="register")
    Classify.prepare(config, utterances, tmp_path)
    exec(compile(check, "guide", "exec"), {"task": Classify(config, tmp_path), "utterances": utterances})  # noqa: S102
    torch.save({"scale": torch.tensor([2.0])}, tmp_path / "own.pt")
    found = FAMILY.importer.read(SslConfig("my_upstreams.energy"), tmp_path / "own.pt", tmp_path)
    assert found.tensors["upstream.scale"].item() == 2


def test_the_upstream_of_the_guide_is_used_in_python_without_weights(tmp_path):
    section = GUIDE.read_text(encoding="utf-8").partition("## Add an upstream")[2]
    (tmp_path / "energy.py").write_text(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0])
    upstream = attune.load_upstream(str(tmp_path / "energy.py"), device="cpu")
    assert [layer.shape for layer in upstream.layers([np.ones(700, np.float32)])[0]] == [(3, 1)] * 2
