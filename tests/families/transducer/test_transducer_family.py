from pathlib import Path

import pytest
import torch

from attune.corpora import open_manifest
from attune.decoding.predict import prepare_for_decoding
from attune.decoding.search import Search
from attune.errors import ConfigError
from attune.families._own import own_of
from attune.families.transducer import FAMILY, TransducerConfig
from attune.families.transducer.build import build_transducer
from attune.families.transducer.contextnet import MaskedConvolution
from attune.families.transducer.prediction import StatelessNet
from attune.families.transducer.presets import preset
from attune.families.transducer.shape import PredictionShape, read_shape
from attune.tasks.classify import Classify, ClassifyConfig
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.testing import check_family, make_corpus
from attune.training.adapt import adapt
from attune.training.settings import AdaptConfig
from attune.types import Batch, Hypothesis, TokenTargets

from tiny import batch_of

PIECES = TranscribeConfig(tokens="bpe", vocabulary=40)


def dummy(encoder="contextnet", **settings):
    return TransducerConfig(encoder=encoder, size="dummy", tokens="task", **settings)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return list(open_manifest(make_corpus(folder, utterances=24), folder / "index"))


@pytest.fixture(scope="module")
def task(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    Transcribe.prepare(PIECES, corpus, folder)
    return Transcribe(PIECES, folder)


@pytest.fixture
def built(task):
    torch.manual_seed(3)
    return FAMILY.build(dummy(), task, Path("nowhere"))


@pytest.mark.parametrize("encoder", ["contextnet", "conformer", "fastconformer"])
def test_keeps_every_promise(corpus, task, encoder):
    check_family(FAMILY, dummy(encoder), task, corpus[5:8], Path("nowhere"))


@pytest.mark.parametrize("settings", [{"prediction": "stateless"}, {"durations": (0, 1, 2, 4)}])
def test_keeps_every_promise_with_other_nets_and_durations(corpus, task, settings):
    check_family(FAMILY, dummy(**settings), task, corpus[5:8], Path("nowhere"))


@pytest.mark.parametrize(
    ("encoder", "size", "millions"),
    [
        ("contextnet", "large", 145),
        ("contextnet", "medium", 41),
        ("contextnet", "small", 14.5),
        ("contextnet", "shallow", 15.0),
        ("conformer", "large", 120),
        ("conformer", "small", 14.6),
        ("conformer", "shallow", 19.7),
        ("fastconformer", "large", 114),
        ("fastconformer", "medium", 31),
    ],
)
def test_sizes_are_those_of_nemos_models_and_a_shallow_one(task, encoder, size, millions):
    with torch.device("meta"):
        model = build_transducer(
            TransducerConfig(encoder=encoder, size=size, tokens="task"), task, Path("nowhere")
        ).model
    rows = (1024 - len(model.pieces)) * (model.shape.prediction.width + model.shape.joint.width + 1)
    assert sum(weight.numel() for weight in model.parameters()) + rows == pytest.approx(millions * 1e6, rel=0.01)


@pytest.mark.parametrize("encoder", ["contextnet", "conformer", "fastconformer"])
def test_a_new_model_names_its_widths_where_nemo_looks_for_them(encoder):
    named = preset(dummy(encoder))["model_defaults"]
    shape = read_shape(preset(dummy(encoder)))
    widths = (shape.encoder.width, shape.prediction.width, shape.joint.width)
    assert (named["enc_hidden"], named["pred_hidden"], named["joint_hidden"]) == widths


@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_of_one_frame_is_what_torch_makes_of_it(groups, stride):
    layer = MaskedConvolution(6, 6, 1, stride, 1, groups)
    frames = torch.randn(3, 6, 9)
    expected = torch.nn.functional.conv1d(frames, layer.conv.weight, stride=stride, groups=groups)
    found, left = layer(frames, own_of(torch.tensor([9, 4, 1]), 9))
    assert torch.allclose(found, expected, atol=1e-6)
    assert left.lengths.tolist() == [-(-length // stride) for length in (9, 4, 1)]


def test_the_recipe_says_how_much_of_the_lattice_is_computed_at_once(task, monkeypatch):
    from attune.families.transducer import model as module

    asked, real = [], module.transducer_loss
    monkeypatch.setattr(module, "transducer_loss", lambda *given: (asked.append(given[-1]), real(*given))[1])
    batch = batch_of([("a", torch.randn(8000).numpy(), (1, 2, 3))])
    for cells in (None, 7):
        FAMILY.build(dummy(joint_cells=cells), task, Path("nowhere")).model.loss(batch)
    assert asked == [None, 7]


def test_the_dummy_is_half_a_megabyte(built):
    assert 4 * sum(weight.numel() for weight in built.model.parameters()) == pytest.approx(0.5e6, rel=0.2)


def test_the_tokens_of_the_task_lose_their_blank_and_come_back(built, task, corpus):
    for utterance in corpus:
        target = built.codec.target(utterance)
        assert target == tuple(token - 1 for token in task.target(utterance))
        assert built.codec.read(Hypothesis(target, 0.0)) == utterance.text
    assert len(built.model.pieces) == task.tokenizer.size - 1 == built.model.lattice.blank


def test_a_silent_utterance_counts_as_one_and_others_by_their_labels(built, corpus):
    audio = torch.randn(12_000).numpy()
    assert int(built.model.loss(batch_of([("a", audio, ()), ("b", audio, (1, 2, 3))])).count) == 4
    assert bool(torch.isfinite(built.model.loss(batch_of([("a", audio, ())])).total))


@pytest.mark.parametrize("samples", [1, 100, 160, 400])
def test_the_shortest_audio_has_a_frame(built, samples):
    batch = batch_of([("a", torch.randn(samples).numpy(), (1, 2)), ("b", torch.randn(9000).numpy(), (3,))])
    with torch.no_grad():
        built.model.eval()
        assert bool(torch.isfinite(built.model.loss(batch).total))
        assert int(built.model.scorer(batch).lengths[0]) == 1 == built.model.frames(samples)


def test_dither_is_drawn_in_training_only_and_by_the_seed(built):
    front_end, audio = built.model.preprocessor, torch.randn(1, 8000) * 1e-4
    lengths = torch.tensor([8000])

    def mels(seed):
        torch.manual_seed(seed)
        return front_end(audio, lengths)[0]

    front_end.train()
    assert torch.equal(mels(1), mels(1)) and not torch.equal(mels(1), mels(2))
    front_end.eval()
    assert torch.equal(mels(1), mels(2))


def test_gradient_checkpointing_gives_the_same_gradients(task, corpus):
    gradients = []
    for saves in (False, True):
        torch.manual_seed(3)
        model = FAMILY.build(dummy("fastconformer", gradient_checkpointing=saves), task, Path("nowhere")).model
        torch.manual_seed(4)
        model.loss(batch_of([("a", torch.randn(20_000).numpy(), (1, 2, 3))])).total.backward()
        gradients.append([weight.grad.clone() for weight in model.parameters()])
        torch.manual_seed(3)
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("encoder", ["contextnet", "conformer", "fastconformer"])
def test_half_precision_gives_nearly_the_same_loss_and_finite_gradients(task, encoder):
    torch.manual_seed(3)
    model = FAMILY.build(dummy(encoder), task, Path("nowhere")).model
    model.preprocessor.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    batch = batch_of([("a", torch.randn(20_000).numpy(), (1, 2, 3)), ("b", torch.randn(9000).numpy(), (4,))])
    with torch.no_grad():
        full = float(model.loss(batch).total)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(batch).total
    loss.backward()
    assert float(loss.detach()) == pytest.approx(full, rel=2e-2)
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters())


def test_a_model_that_was_decoded_in_half_precision_can_be_trained_further(built):
    built.model.train()
    narrow = prepare_for_decoding(built, Search(precision="bf16")).model
    assert narrow is not built.model and built.model.narrow is None
    assert not any(module.training for module in built.model.modules())  # or the loop would not wake it all up


def test_lora_leaves_the_output_alone_which_the_loss_reads_without_calling_it(task):
    pytest.importorskip("peft")
    model = FAMILY.build(dummy("fastconformer"), task, Path("nowhere")).model
    adapted = adapt(model, AdaptConfig(method="lora", rank=2, targets=("linear_q", "enc", "pred")), seed=1)
    assert adapted.lora_layers and not any(name.startswith("joint.output") for name in adapted.lora_layers)
    model.loss(batch_of([("a", torch.randn(20_000).numpy(), (1, 2, 3))])).total.backward()
    with pytest.raises(ConfigError, match="no layer that LoRA can adapt is named 'joint.output'"):
        adapt(model, AdaptConfig(method="lora", targets=("joint.output",)), seed=1)


def test_a_stateless_net_says_the_same_label_by_label():
    torch.manual_seed(0)
    net = StatelessNet(9, 3, PredictionShape(20, 0, 3, has_norm=True, dropout=0.0))
    labels = torch.randint(9, (2, 6))
    whole = net(labels)
    said, states = net.start(2)
    assert torch.equal(said, whole[:, 0])
    for place in range(6):
        said, states = net.advance(labels[:, place], states)
        assert torch.allclose(said, whole[:, place + 1], atol=1e-6)
    assert [embed.embedding_dim for embed in net.embeds] == [14, 3, 3]


@pytest.mark.parametrize("context", [1, 2, 3])
def test_a_stateless_net_says_what_comes_first_where_no_utterance_has_a_label(context):
    net = StatelessNet(9, context, PredictionShape(20, 0, context, has_norm=True, dropout=0.0))
    assert torch.equal(net(torch.zeros(2, 0, dtype=torch.long)), net.start(2)[0][:, None])


def test_a_task_without_text_is_refused(tmp_path, corpus):
    config = ClassifyConfig(label="register")
    Classify.prepare(config, corpus, tmp_path)
    with pytest.raises(ConfigError, match="needs text"):
        FAMILY.build(dummy(), Classify(config, tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no tokens of its own"),
        ({"tokens": "task"}, "encoder` and `size`"),
        ({"tokens": "task", "size": "large"}, "both"),
        ({"tokens": "task", "size": "large", "encoder": "conformer", "durations": (1, 2)}, "need a 0"),
        ({"tokens": "task", "size": "large", "encoder": "conformer", "durations": (0, 2)}, "and a 1"),
    ],
)
def test_settings_that_describe_no_model_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TransducerConfig(**settings)


@pytest.mark.parametrize("encoder", ["contextnet", "conformer", "fastconformer"])
def test_the_encoder_makes_as_many_frames_as_the_longest_row_has(task, encoder):
    torch.manual_seed(3)
    model = build_transducer(dummy(encoder), task, Path("nowhere")).model.eval()
    for samples in (1, 159, 160, 1600, 5119, 5120, 5121, 16000, 25_600, 40_003):
        lengths = torch.tensor([samples, max(1, samples // 3)])
        none = torch.zeros(2, 0, dtype=torch.int64)
        targets = TokenTargets(none, torch.zeros(2, dtype=torch.int64))
        batch = Batch(("a", "b"), torch.randn(2, samples), lengths, targets)
        with torch.inference_mode():
            encoded, counts = model.encode(batch)
        assert counts.tolist() == [model.frames(count) for count in lengths.tolist()]
        assert encoded.shape[1] == counts[0]


def test_the_lstm_keeps_its_type_under_autocast(built):
    labels = torch.tensor([[1, 2, 3]])
    net = built.model.decoder.prediction.eval()
    with torch.autocast("cpu", torch.bfloat16):
        said = net(labels)
    assert said.dtype == torch.float32
    assert torch.equal(said, net(labels))
