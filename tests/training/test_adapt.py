import sys

import pytest
import torch
from torch import nn

from attune import catalog
from attune.errors import ConfigError
from attune.recipe import load as load_recipe
from attune.training.adapt import adapt, merge_lora
from attune.training.optimizer import load_state_by_name, make_optimizer, state_by_name
from attune.training.settings import AdaptConfig
from attune.types import Utterance

from tiny import write_recipe

LORA = AdaptConfig(method="lora", rank=2, alpha=6.0, dropout=0.1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(8, 8)
        self.v_proj = nn.Linear(8, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, frames):
        return frames + self.norm(torch.tanh(self.q_proj(frames)) * self.v_proj(frames))


class Tiny(nn.Module):
    """An encoder of three layers whose output layer shares its weights with the embedding."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(11, 8)
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(8, 8)
        self.output = nn.Linear(8, 11, bias=False)
        self.output.weight = self.embed.weight

    def forward(self, tokens):
        frames = self.embed(tokens)
        for layer in self.encoder.layers:
            frames = layer(frames)
        return self.output(self.head(frames))


TOKENS = torch.arange(40) * 7 % 11


def trained_names(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def train(model, optimizer, steps, seed=0):
    model.train()
    for step in range(steps):
        torch.manual_seed(seed + step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(TOKENS), (TOKENS + 1) % 11).backward()
        optimizer.step()


def difference(one, other):
    return float(((one - other).abs().max() / other.abs().max()).detach())


def taught(settings, steps=5, **more):
    model = Tiny()
    report = adapt(model, settings, seed=3, **more)
    train(model, make_optimizer("adamw", model, 1e-2, 0.0, (0.9, 0.98)), steps)
    return model.eval(), report


def test_full_trains_everything_and_counts_it():
    model = Tiny()
    before = list(model.state_dict())
    report = adapt(model, AdaptConfig(), seed=0)
    assert trained_names(model) == {name for name, _ in model.named_parameters()}
    assert report.trainable == report.total == sum(p.numel() for p in model.parameters())
    assert list(model.state_dict()) == before


@pytest.mark.parametrize(
    ("pattern", "frozen"),
    [
        ("encoder", ("encoder.",)),
        ("encoder.layers.1", ("encoder.layers.1.",)),
        ("layers.[01].q_proj", ("encoder.layers.0.q_proj.", "encoder.layers.1.q_proj.")),
        ("*norm", tuple(f"encoder.layers.{index}.norm." for index in range(3))),
        ("head.bias", ("head.bias",)),
        ("output", ("embed.",)),  # the weights that the two share
    ],
)
def test_a_frozen_part_is_named_by_the_end_of_its_name(pattern, frozen):
    model = Tiny()
    report = adapt(model, AdaptConfig(freeze=(pattern,)), seed=0)
    names = {name for name, _ in model.named_parameters()}
    assert names - trained_names(model) == {name for name in names if name.startswith(frozen)}
    assert 0 < report.trainable < report.total


def test_every_unknown_part_is_named_with_what_was_perhaps_meant():
    with pytest.raises(ConfigError) as caught:
        adapt(Tiny(), AdaptConfig(freeze=("encodr", "encoder", "layers.3.v_proj", "xyz")), seed=0)
    first, second, third = str(caught.value).splitlines()
    assert "no part 'encodr'; did you mean 'encoder'?" in first
    assert "layers.3.v_proj" in second and "did you mean 'encoder.layers." in second
    assert "no part 'xyz' (known: bias, embed, encoder, head, layers, norm, output, q_proj, v_proj, weight)" in third


def test_the_last_layers_and_what_follows_them_are_trained_but_not_what_is_shared_with_the_input():
    model = Tiny()
    adapt(model, AdaptConfig(last_layers=1), seed=0)
    assert {name.rpartition(".")[0] for name in trained_names(model)} == {
        *(f"encoder.layers.2.{part}" for part in ("q_proj", "v_proj", "norm")),
        "head",
    }


def test_a_fresh_tensor_is_trained_wherever_it_lies():
    fresh = {"encoder.layers.0.q_proj.bias", "head.weight"}
    last, lora = Tiny(), Tiny()
    adapt(last, AdaptConfig(last_layers=0), seed=0, fresh=fresh)
    assert trained_names(last) == {*fresh, "head.bias"}
    adapt(lora, AdaptConfig(method="lora", freeze=("layers.0",)), seed=0, fresh=fresh)
    assert {name for name in trained_names(lora) if "lora" not in name} == {"head.weight"}


def test_last_layers_need_layers():
    with pytest.raises(ConfigError, match="no stack of layers"):
        adapt(nn.Linear(2, 2), AdaptConfig(last_layers=1), seed=0)


def test_more_last_layers_than_there_are_are_refused():
    adapt(Tiny(), AdaptConfig(last_layers=3), seed=0)
    with pytest.raises(ConfigError, match="last_layers=4 would train the whole model"):
        adapt(Tiny(), AdaptConfig(last_layers=4), seed=0)


def test_freezing_everything_is_refused():
    with pytest.raises(ConfigError, match="no parameter is left to train"):
        adapt(Tiny(), AdaptConfig(freeze=("*",)), seed=0)


@pytest.mark.parametrize("settings", [AdaptConfig(freeze=("encoder",)), LORA], ids=["frozen", "lora"])
def test_frozen_tensors_keep_their_bits_and_norms_their_statistics(settings):
    model, _ = taught(settings)
    before, after = Tiny().state_dict(), {name.replace(".base_layer", ""): t for name, t in model.state_dict().items()}
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("encoder"))


def test_lora_learns_through_its_additions_alone():
    model, report = taught(LORA)
    assert len(report.lora_layers) == 6 and "encoder.layers.0.q_proj" in report.lora_layers
    assert report.trainable == 6 * 2 * (8 + 8)
    assert all("lora_" in name for name in trained_names(model))
    assert difference(model(TOKENS), Tiny().eval()(TOKENS)) > 1e-2


def test_lora_starts_where_the_model_is_and_the_same_for_the_same_seed():
    models = [Tiny(), Tiny(seed=0), Tiny()]
    for model, seed in zip(models, (3, 3, 4), strict=True):
        torch.rand(seed)  # what was drawn before does not matter
        adapt(model, LORA, seed=seed)
    assert torch.equal(models[0].eval()(TOKENS), Tiny().eval()(TOKENS))
    downs = [model.state_dict()["encoder.layers.1.q_proj.lora_A.default.weight"] for model in models]
    assert torch.equal(downs[0], downs[1]) and not torch.equal(downs[0], downs[2])


def test_lora_leaves_frozen_layers_without_additions():
    model = Tiny()
    report = adapt(model, AdaptConfig(method="lora", last_layers=2, freeze=("layers.1",)), seed=0)
    assert report.lora_layers == ("encoder.layers.2.q_proj", "encoder.layers.2.v_proj")
    with pytest.raises(ConfigError, match="every layer named q_proj, v_proj is frozen"):
        adapt(Tiny(), AdaptConfig(method="lora", freeze=("encoder",)), seed=0)


def test_lora_targets_are_linear_layers_with_weights_of_their_own():
    with pytest.raises(ConfigError, match="adapt.targets: no layer that LoRA can adapt is named 'output'"):
        adapt(Tiny(), AdaptConfig(method="lora", targets=("output",)), seed=0)
    with pytest.raises(ConfigError, match="LoRA can adapt is named 'k_proj'; did you mean '[qv]_proj'"):
        adapt(Tiny(), AdaptConfig(method="lora", targets=("q_proj", "k_proj")), seed=0)


def test_what_is_merged_loads_strictly_into_a_plain_model_that_says_the_same():
    model, _ = taught(LORA)
    merged = merge_lora(model.state_dict(), LORA)
    plain = Tiny(seed=9)
    assert list(merged) == list(plain.state_dict())
    plain.load_state_dict(merged, strict=True)
    assert difference(plain.eval()(TOKENS), model(TOKENS)) <= 1e-6


def test_merging_a_model_without_additions_changes_nothing():
    state = Tiny().state_dict()
    merged = merge_lora(state, AdaptConfig())
    assert list(merged) == list(state) and all(merged[name] is state[name] for name in state)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit"])
def test_training_with_lora_goes_on_in_the_same_bits_from_what_is_saved(optimizer):
    def fresh():
        model = Tiny()
        adapt(model, LORA, seed=3)
        return model, make_optimizer(optimizer, model, 1e-2, 0.1, (0.9, 0.98))

    whole, first = fresh()
    train(whole, first, 3)
    weights = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    state = {name: tensor.clone() for name, tensor in state_by_name(first, whole).items()}
    train(whole, first, 3, seed=100)

    resumed, second = fresh()
    resumed.load_state_dict(weights, strict=True)
    load_state_by_name(second, resumed, state)
    train(resumed, second, 3, seed=100)
    assert all(torch.equal(tensor, resumed.state_dict()[name]) for name, tensor in whole.state_dict().items())


def test_whisper_takes_lora_and_gives_back_its_own_names():
    transformers = pytest.importorskip("transformers")
    sizes = dict(d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2)
    rest = dict(encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=60, max_source_positions=20, max_target_positions=8)
    tokens = dict(pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=1)
    config = transformers.WhisperConfig(**sizes, **rest, **tokens, num_mel_bins=8)

    def build():
        torch.manual_seed(0)
        return transformers.WhisperForConditionalGeneration(config).eval()

    def logits(model):
        torch.manual_seed(1)
        return model(input_features=torch.randn(2, 8, 40), decoder_input_ids=torch.tensor([[1, 5], [1, 7]])).logits

    model = build()
    report = adapt(model, LORA, seed=0)
    assert len(report.lora_layers) == 2 * (2 + 2 + 2)  # q and v of the encoder, the decoder, and between the two
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B.default.weight"):
            nn.init.normal_(parameter)
    plain = build()
    unmoved = logits(plain)
    plain.load_state_dict(merge_lora(model.state_dict(), LORA), strict=True)
    assert difference(logits(plain), unmoved) > 1e-2
    assert difference(logits(plain), logits(model)) <= 1e-6


def test_without_peft_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r'pip install "attune-speech\[lora\]"'):
        adapt(Tiny(), LORA, seed=0)


def test_settings_of_lora_without_lora_are_refused():
    with pytest.raises(ValueError, match="need `method: lora`"):
        AdaptConfig(rank=8)


def test_without_targets_lora_adapts_the_first_group_that_the_model_has():
    groups = (("linear_q", "linear_v"), ("head",), ("q_proj",))
    assert adapt(Tiny(), LORA, seed=0, default_targets=groups).lora_layers == ("head",)
    with pytest.raises(ConfigError, match="LoRA can adapt is named 'linear_q' .known: head, q_proj, v_proj."):
        adapt(Tiny(), LORA, seed=0, default_targets=groups[:1])


def test_targets_that_are_all_new_are_refused_with_the_layers_that_there_are():
    fresh = {name for name, _ in Tiny().named_parameters()}
    with pytest.raises(ConfigError, match=r"named q_proj, v_proj is frozen, or new .*known: head, q_proj, v_proj"):
        adapt(Tiny(), LORA, seed=0, fresh=fresh)


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        ("{family: transducer, encoder: conformer, size: dummy, tokens: task}", {"linear_q", "linear_v"}),
        ("{family: transducer, encoder: fastconformer, size: dummy, tokens: task}", {"linear_q", "linear_v"}),
        ("{family: transducer, encoder: contextnet, size: dummy, tokens: task}", {"enc", "pred"}),
        ("{family: ssl}", {"projection"}),
    ],
)
def test_every_family_has_layers_for_lora_by_default(model, layers, tmp_path):
    recipe = load_recipe(write_recipe(tmp_path, 2), [f"model={model}"]).recipe
    task, family = catalog.find(catalog.TASKS, "transcribe"), catalog.find(catalog.FAMILIES, recipe.model.family)
    task.prepare(recipe.task.config, [Utterance("a", 1.0, text="one two")], tmp_path)
    built = family.build(recipe.model.config, task(recipe.task.config, tmp_path), tmp_path)
    adapted = adapt(built.module, LORA, seed=0, default_targets=family.lora_targets)
    assert {name.rpartition(".")[2] for name in adapted.lora_layers} == layers


def test_a_run_that_wrote_out_the_former_default_targets_can_be_read():
    assert AdaptConfig(targets=("q_proj", "v_proj")) == AdaptConfig()
    with pytest.raises(ValueError, match="need `method: lora`"):
        AdaptConfig(targets=("k_proj",))
