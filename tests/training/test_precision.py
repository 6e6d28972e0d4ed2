"""What is compiled, and what is left as it is."""

from torch import nn

from attune.training.precision import compile_layers


def test_an_lstm_is_not_compiled_so_that_a_copy_of_it_may_score_in_double_precision():
    model = nn.ModuleDict({"head": nn.ModuleList([nn.LSTM(2, 2)]), "stack": nn.ModuleList([nn.Linear(2, 2)])})
    compile_layers(model)
    assert model["head"][0]._compiled_call_impl is None
    assert model["stack"][0]._compiled_call_impl is not None


def test_compiled_layers_call_the_masked_norm_as_it_is():
    from attune.kernels import batch_norm

    assert batch_norm._apply._torchdynamo_disable
