"""Features that are kept: computed once, read by any task, complete or absent."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attune.batches.load import Reader, load
from attune.batches.micro_batch import MicroBatchPlan, Position
from attune.cli import main
from attune.corpora import open_manifest
from attune.errors import ConfigError, DataError
from attune.families.ssl import FAMILY, SslConfig
from attune.families.ssl.held import HeldFeatures
from attune.tasks.classify import Classify, ClassifyConfig
from attune.testing import make_corpus
from attune.training.adapt import adapt
from attune.training.settings import AdaptConfig

from tiny import write_recipe
from tiny_upstreams import make_encoder

FROZEN, FIXED = AdaptConfig(freeze=("upstream",)), AdaptConfig(freeze=("upstream", "featurizer"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    make_encoder("hubert").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return list(open_manifest(make_corpus(folder, utterances=6), folder / "index"))


@pytest.fixture(scope="module")
def task(corpus, tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("task"), ClassifyConfig(label="register")
    Classify.prepare(config, corpus, folder)
    return Classify(config, folder)


@pytest.fixture
def build(checkpoint, task, tmp_path):
    def build_model(how=FROZEN, cache=tmp_path / "cache", **settings):
        config, assets = SslConfig("hubert", cache=cache and str(cache), **settings), tmp_path / "assets"
        assets.mkdir(exist_ok=True)
        weights = FAMILY.importer.read(config, checkpoint, assets).tensors
        torch.manual_seed(5)
        built = FAMILY.build(config, task, assets)
        built.module.load_state_dict(weights, strict=False)
        adapt(built.module, how, seed=1)
        return built

    return build_model


def batch_of(corpus, task, built, rows=(0, 1, 2)):
    """As training reads it."""
    return Reader(corpus, task.target, cached=built.cache.lookup()).read(rows)[0]


@pytest.mark.parametrize(
    ("how", "settings", "layers"),
    [(FROZEN, {}, 4), (FROZEN, {"layers": -1}, 1), (FROZEN, {"normalize": True}, 4), (FIXED, {}, 1)],
    ids=["per layer", "one layer", "normed", "fixed sum"],
)
def test_features_from_files_have_the_bits_that_were_computed(build, corpus, task, how, settings, layers):
    built, plain = build(how, cache_precision="fp32", **settings), build(how, cache=None, **settings)
    first = batch_of(corpus, task, built)
    assert first.cached.layers is None
    expected = plain.model.loss(first).total
    assert torch.equal(built.model.loss(first).total, expected)
    again = batch_of(corpus, task, built)
    assert again.cached.layers.shape[1] == layers
    assert again.audio.shape[1] == 0  # the recordings are not read
    assert again.lengths.tolist() == first.lengths.tolist()
    found = built.model.loss(again).total
    assert torch.equal(found, expected)
    found.backward()
    expected.backward()
    for (name, one), (_, other) in zip(built.module.named_parameters(), plain.module.named_parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.equal(one.grad, other.grad), name


def test_half_precision_features_are_close_and_half_as_large(build, corpus, task):
    built, plain = build(), build(cache=None)
    first = batch_of(corpus, task, built)
    computed = built.model.loss(first).total
    again = batch_of(corpus, task, built)
    assert again.cached.layers.dtype == torch.bfloat16
    assert torch.equal(built.model.loss(again).total, computed)
    assert computed.item() == pytest.approx(plain.model.loss(first).total.item(), rel=0.05)


@pytest.mark.parametrize("needs_audio", [False, True])
def test_workers_name_the_files_of_features_and_the_batches_are_the_same(build, corpus, task, needs_audio):
    built = build()
    built.model.loss(batch_of(corpus, task, built, range(5)))
    reader = Reader(corpus, task.target, cached=built.cache.lookup(), cached_needs_audio=needs_audio)
    micros = [MicroBatchPlan(Position(), slot, np.array(rows)) for slot, rows in enumerate([[0, 1, 2], [4, 3], [5, 0]])]
    alone, sent = ([each.batch for each in load(reader, micros, workers)] for workers in (0, 2))
    assert [batch.cached.layers is not None for batch in alone] == [True, True, False]  # row 5 is not there yet
    for one, other in zip(alone, sent, strict=True):
        assert (one.ids, one.cached.keys) == (other.ids, other.cached.keys)
        assert torch.equal(one.audio, other.audio)
        assert torch.equal(one.tokens.ids, other.tokens.ids)
        assert (one.cached.layers is None) == (other.cached.layers is None)
        if one.cached.layers is not None:
            assert torch.equal(one.cached.layers, other.cached.layers)
            assert torch.equal(one.cached.counts, other.cached.counts)


@pytest.mark.parametrize(("how", "layers"), [(FROZEN, 4), (FIXED, 1)], ids=["per layer", "fixed sum"])
def test_features_in_the_devices_memory_are_read_once_and_have_the_same_bits(build, corpus, task, how, layers):
    built = build(how, cache_device_gb=1)
    built.model.loss(batch_of(corpus, task, built, range(5)))
    read, held, mixed = (epoch(built, corpus, task, rows) for rows in ([[0, 1, 2]], [[2, 0]], [[1, 3]]))
    assert read[0].cached.layers.shape[:2] == (3, layers)
    assert held[0].cached.layers is None
    assert mixed[0].cached.layers is not None  # row 3 was not read before
    expected = build(how).model.loss(batch_of(corpus, task, build(how), (2, 0))).total
    found = built.model.loss(held[0]).total
    assert torch.equal(found, expected)
    found.backward()
    with torch.no_grad():
        next(built.module.upstream.parameters()).add_(1)
    assert batch_of(corpus, task, built, (2, 0)).cached.layers is None  # other weights: nothing is kept
    assert held[0].cached.keys[0] not in built.cache.held


def epoch(built, corpus, task, batches):
    """The batches as workers send them, after the model has seen them."""
    reader = Reader(corpus, task.target, cached=built.cache.lookup(), held=built.cache.held)
    micros = (MicroBatchPlan(Position(), slot, np.array(rows)) for slot, rows in enumerate(batches))
    found = [each.batch for each in load(reader, micros, workers=1)]
    for batch in found:
        built.model.loss(batch)
    return found


def test_what_the_devices_memory_has_no_room_for_is_read_again():
    held, rows = HeldFeatures(2 * 3 * 2 * 4), torch.rand(2, 4, 3)
    held.add(("a", "b"), (rows, rows), torch.tensor([2, 4]))  # of 48 and 96 bytes
    assert ("a" in held, "b" in held) == (True, False)
    held.add(("c", "a"), (rows, rows), torch.tensor([1, 2]))
    assert "c" not in held
    assert torch.equal(held.layers(("a", "a"))[1], rows[:1, :2].expand(2, -1, -1))
    assert "a" not in pickle.loads(pickle.dumps(held))  # other processes have no such device


@pytest.mark.gpu
def test_batches_read_by_threads_are_pinned_and_come_in_their_order(build, corpus, task):
    built = build()
    built.model.loss(batch_of(corpus, task, built, range(5)))
    reader = Reader(corpus, task.target, cached=built.cache.lookup())
    plans = [[0, 1, 2], [4, 3], [5, 0], [1], [2, 3, 4]] * 4
    micros = [MicroBatchPlan(Position(), slot, np.array(rows)) for slot, rows in enumerate(plans)]
    for one, other in zip(load(reader, micros, 2), load(reader, micros, 2, pins=True), strict=True):
        assert one.batch.ids == other.batch.ids
        if one.batch.cached.layers is not None:
            assert other.batch.cached.layers.is_pinned()
            assert torch.equal(one.batch.cached.layers, other.batch.cached.layers)


def test_a_batch_with_one_row_that_is_missing_is_computed_as_a_whole(build, corpus, task):
    built = build()
    built.model.loss(batch_of(corpus, task, built, (0, 1)))
    assert batch_of(corpus, task, built, (0, 1)).cached.layers is not None
    mixed = batch_of(corpus, task, built, (0, 1, 2))
    assert mixed.cached.layers is None
    assert mixed.audio.shape[1] > 0
    built.model.loss(mixed)
    assert batch_of(corpus, task, built, (2, 0)).cached.layers is not None


def test_a_recording_that_changed_is_computed_again(build, corpus, task, tmp_path):
    built = build()
    path = tmp_path / "own.wav"
    path.write_bytes(corpus[0].audio.read_bytes())
    rows = [replace(corpus[0], audio=path)]
    built.model.loss(batch_of(rows, task, built, [0]))
    assert batch_of(rows, task, built, [0]).cached.layers is not None
    path.write_bytes(corpus[3].audio.read_bytes())
    assert batch_of(rows, task, built, [0]).cached.layers is None


def test_other_weights_layers_and_precisions_have_folders_of_their_own(build):
    built = build()
    first = built.cache.folder()
    assert first == build().cache.folder()
    assert len({first, build(layers=(0, 1)).cache.folder(), build(cache_precision="fp32").cache.folder()}) == 3
    with torch.no_grad():
        next(built.model.upstream.parameters()).add_(1)
    assert built.cache.folder() != first


def test_upstreams_without_weights_and_other_settings_have_folders_of_their_own(build, task, tmp_path):
    def folder(name):
        config = SslConfig(str(name), cache=str(tmp_path / "cache"))
        return FAMILY.build(config, task, tmp_path / "assets").cache.folder()

    filterbanks = ("fbank", "mfcc", "mel", "linear", "spectrogram")
    assert len({folder(name) for name in filterbanks}) == len(filterbanks)
    built = build()
    first = built.cache.folder()
    (tmp_path / "assets/preprocessor_config.json").write_text('{"do_normalize": false}')
    weights = built.module.state_dict()
    built = FAMILY.build(SslConfig("hubert", cache=str(tmp_path / "cache")), task, tmp_path / "assets")
    built.module.load_state_dict(weights)
    assert built.cache.folder() != first


def test_a_plug_in_that_was_edited_has_another_folder(task, tmp_path):
    written = (
        "from attune.audio.features import fbank, frame_count\n"
        "from attune.families.ssl.filterbanks import FilterbankUpstream\n"
        "from attune.families.ssl.upstream import UpstreamType\n"
        "def features(audio, lengths):\n"
        "    return fbank(audio, lengths)\n"
        "UPSTREAM = UpstreamType(lambda assets: FilterbankUpstream(features, frame_count, 240))\n"
    )
    path = tmp_path / "loud.py"
    path.write_text(written)
    built = FAMILY.build(SslConfig(str(path), cache=str(tmp_path / "cache")), task, tmp_path)
    first = built.cache.folder()
    path.write_text(written.replace("fbank(audio,", "fbank(2 * audio,"))
    built = FAMILY.build(SslConfig(str(path), cache=str(tmp_path / "cache")), task, tmp_path)
    assert built.cache.folder() != first


def test_a_damaged_file_is_named(build, corpus, task):
    built = build()
    built.cache.folder().mkdir(parents=True)
    (built.cache.folder() / "broken.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match=r"broken\.safetensors is damaged .* Delete it"):
        batch_of(corpus, task, built)


def test_the_size_is_told_before_and_refused_where_there_is_no_room(build):
    built = build()
    assert "10.0 h, 4 of the upstream's layers, take 0.5 GB" in built.cache.note(36_000)
    with pytest.raises(ConfigError, match=r"Choose fewer model\.layers, cache_precision=bf16 or another folder"):
        built.cache.note(1e13)


def test_an_upstream_that_learns_is_refused(build, corpus, task):
    built = build(AdaptConfig())
    batch = batch_of(corpus, task, built)
    with pytest.raises(ConfigError, match=r"needs a frozen upstream\. Set adapt\.freeze=\[upstream\]"):
        built.model.loss(batch)


def test_an_evaluation_reads_what_training_kept_and_adds_nothing(build, corpus, task):
    built, plain = build(), build(AdaptConfig())  # as a model is built to be scored
    built.model.loss(batch_of(corpus, task, built))
    built.cache.flush()
    with torch.inference_mode():
        kept = batch_of(corpus, task, plain)
        assert kept.cached.layers is not None
        plain.model.scorer(kept)
        plain.model.scorer(batch_of(corpus, task, plain, (3, 4)))
    plain.cache.flush()
    assert len(list(built.cache.folder().iterdir())) == 1


RECIPE = """\
run: {folder}/run
seed: 17
data: {{train: [{train}], dev: [{dev}], test: [{dev}]}}
task: {{name: classify, label: register, head: {{width: 16}}}}
model: {{family: ssl, upstream: hubert, cache_precision: fp32}}
adapt: {{freeze: [upstream]}}
batches: {{micro_utterances: 4, micros_per_step: 2}}
optimizer: {{lr: 0.01}}
train: {{steps: 4, eval_every: 4, save_every: 4, log_every: 1}}
"""


def test_a_run_with_kept_features_learns_the_same_and_tells_the_layers_weights(checkpoint, tmp_path, capsys):
    recipe = write_recipe(tmp_path, utterances=8, text=RECIPE)
    words = [str(recipe), f"model.weights={checkpoint}", "--workers=0", "--device=cpu"]
    losses = {}
    for name, extra in (("plain", []), ("kept", [f"model.cache={tmp_path / 'cache'}"])):
        assert main(["train", *words, f"run={tmp_path / name}", *extra]) == 0
        log = map(json.loads, (tmp_path / name / "log.jsonl").read_text().splitlines())
        losses[name] = [line["loss"] for line in log if line.get("event") == "step" or "loss" in line]
    assert len(losses["kept"]) == 4
    assert losses["kept"] == pytest.approx(losses["plain"], rel=1e-5)
    assert "take 0.0 GB in" in capsys.readouterr().out
    assert list(Path(tmp_path / "cache").rglob("*.safetensors"))
    weights = json.loads((tmp_path / "kept/scores.json").read_text())["test"]["layer_weights"]
    assert list(weights) == ["0", "1", "2", "3"]
    assert sum(weights.values()) == pytest.approx(1)
    assert len(set(weights.values())) == 4  # they have learned


def test_augmented_audio_is_refused(checkpoint, tmp_path, capsys):
    recipe = write_recipe(tmp_path, utterances=8, text=RECIPE)
    words = [f"model.weights={checkpoint}", f"model.cache={tmp_path / 'cache'}", "augment.speeds=[0.9, 1.1]"]
    assert main(["train", str(recipe), *words, "--workers=0", "--device=cpu"]) == 2
    assert "model.cache does not work with augment.crop_seconds, speeds" in capsys.readouterr().err


@pytest.mark.parametrize("normalize", [False, True])
def test_kept_filterbanks_are_scored_with_the_bits_that_were_computed(corpus, task, tmp_path, normalize):
    def build_model(cache):
        torch.manual_seed(5)
        config = SslConfig("fbank", normalize=normalize, cache=cache, cache_precision="fp32")
        return FAMILY.build(config, task, tmp_path)

    built, plain = build_model(str(tmp_path / "cache")), build_model(None)
    with torch.no_grad():
        expected = plain.model.eval().head_frames(batch_of(corpus, task, built))[0]
        first = batch_of(corpus, task, built)
        assert torch.equal(built.model.eval().head_frames(first)[0], expected)
        again = batch_of(corpus, task, built)
        assert again.cached.layers is not None
        found = built.model.head_frames(again)[0]
    assert found.dtype == expected.dtype and torch.equal(found, expected)
