import pytest
from torch import nn

from attune.errors import ConfigError
from attune.training.depth import layer_factors, layers_above


def stack(count, width=4):
    return nn.ModuleList(nn.Linear(width, width) for _ in range(count))


class Half(nn.Module):
    """What one half of an encoder-decoder looks like: something, layers, a norm."""

    def __init__(self, layers):
        super().__init__()
        self.embed = nn.Linear(4, 4)
        self.layers = stack(layers)
        self.norm = nn.LayerNorm(4)


class EncoderDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Half(3)
        self.decoder = Half(2)
        self.output = nn.Linear(4, 9)


class Upstream(nn.Module):
    """As wav2vec 2.0 is made: convolutions and a projection before the encoder, a positional stack inside it."""

    def __init__(self):
        super().__init__()
        self.conv_layers = stack(2)
        self.project = nn.Linear(4, 4)
        self.encoder = Half(3)
        self.encoder.embed = nn.ModuleDict({"layers": stack(5)})


def by_module(model):
    return {name.removesuffix(".weight"): above for name, above in layers_above(model).items() if "weight" in name}


def test_each_stack_of_an_encoder_decoder_is_counted_for_itself():
    assert by_module(EncoderDecoder()) == {
        "encoder.embed": 4,
        "encoder.layers.0": 3,
        "encoder.layers.1": 2,
        "encoder.layers.2": 1,
        "encoder.norm": 0,
        "decoder.embed": 3,
        "decoder.layers.0": 2,
        "decoder.layers.1": 1,
        "decoder.norm": 0,
        "output": 0,
    }


def test_all_that_an_encoder_reads_from_lies_below_its_first_layer():
    model = nn.ModuleDict({"upstream": Upstream(), "head": nn.Linear(4, 2)})
    above = by_module(model)
    below = [name for name in above if name.startswith(("upstream.conv", "upstream.project", "upstream.encoder.embed"))]
    assert len(below) == 2 + 1 + 5 and {above[name] for name in below} == {4}
    assert [above[f"upstream.encoder.layers.{index}"] for index in range(3)] == [3, 2, 1]
    assert above["head"] == 0


def test_layers_within_layers_are_not_counted():
    inner = nn.ModuleList(Half(2) for _ in range(2))
    model = nn.ModuleDict({"blocks": inner})
    assert set(layers_above(model).values()) == {1, 2}


def test_a_model_without_a_stack_has_nothing_above_anything():
    assert set(layers_above(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))).values()) == {0}


def test_layers_nearer_the_input_get_less_of_the_learning_rate_and_fresh_ones_all_of_it():
    factors = layer_factors(EncoderDecoder(), 0.5, fresh={"decoder.embed.weight"})
    assert factors["output.weight"] == factors["encoder.norm.bias"] == 1.0
    assert factors["encoder.layers.2.weight"] == pytest.approx(0.5)
    assert factors["encoder.embed.weight"] == pytest.approx(0.5**4)
    assert factors["decoder.embed.weight"] == 1.0 and factors["decoder.embed.bias"] == pytest.approx(0.5**3)


def test_a_model_without_layers_cannot_have_them_decay():
    with pytest.raises(ConfigError, match="no stack of layers"):
        layer_factors(nn.Linear(3, 3), 0.5)


def test_the_blocks_of_a_convolutional_encoder_are_its_layers():
    class Convolutional(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = stack(3)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = Convolutional()
            self.output = nn.Linear(4, 4)

    factors = layer_factors(Model(), 0.5)
    assert [factors[f"encoder.encoder.{layer}.weight"] for layer in range(3)] == [0.125, 0.25, 0.5]
    assert factors["output.weight"] == 1.0
