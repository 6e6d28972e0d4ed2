"""The Triton kernels: in the interpreter anywhere, and themselves on a CUDA device."""

import pytest
import torch

from attune.kernels import transducer
from attune.kernels.transducer import Lattice

from interpreter import in_interpreter
from lattices import Case, distance, gradients, make_case

NAMES = (
    "only a tail", "tiles and a tail", "tiles alone", "labels in the tail", "durations", "durations in a row",
    "fastemit", "no path", "a narrow band", "half",
)  # fmt: skip
ON_DEVICE = {
    "tokens and a blank": make_case([(90, 30), (41, 17), (1, 0), (20, 0), (5, 9)], 256, 128),
    "an odd vocabulary": make_case([(60, 20), (33, 18)], 300, 72),
    "few tokens": make_case([(60, 20), (33, 18)], 28, 64, Lattice(28, activation="tanh")),
    "durations": make_case([(60, 20), (33, 18)], 1024, 96, Lattice(1024, (0, 1, 2, 3, 4), 0.02, 0.01)),
    "many labels": make_case([(40, 700), (300, 90)], 64, 64, Lattice(64, activation="sigmoid")),
}
CASES = pytest.mark.parametrize("case", ON_DEVICE.values(), ids=ON_DEVICE)


@pytest.fixture(scope="module")
def interpreted() -> dict[str, dict[str, float]]:
    """How far off each case is."""
    return in_interpreter("interpreted.py")


@pytest.mark.recipe
@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_compute_what_plain_torch_does(interpreted, name):
    limit = 2e-3 if name == "half" else 2e-6
    assert max(interpreted[name].values()) < limit, interpreted[name]


@pytest.mark.recipe
def test_the_kernels_touch_nothing_but_their_tensors_whatever_the_shapes_and_values():
    assert in_interpreter("guarded.py", "0", "6") == {"batches": 6}


@pytest.mark.gpu
@CASES
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)])
def test_on_cuda_losses_and_gradients_are_those_of_plain_torch_in_float64(case, dtype, limit):
    ours = case.to(dtype, "cuda")
    exact = ours.to(torch.float64)
    losses, wanted = ours.losses(), exact.losses()
    assert losses.dtype == torch.float32
    assert torch.allclose(losses.double().cpu(), wanted, rtol=limit)
    found = gradients(losses, ours)
    assert all(part.dtype == dtype for part in found)
    far = [distance(one, other) for one, other in zip(found, gradients(wanted, exact), strict=True)]
    assert max(far) < limit, far


@pytest.mark.gpu
@CASES
def test_on_cuda_the_same_bits_come_out_every_time(case):
    ours = case.to(torch.bfloat16, "cuda")
    first = gradients(ours.losses(), ours)
    for _ in range(5):
        assert all(torch.equal(one, other) for one, other in zip(gradients(ours.losses(), ours), first, strict=True))


@pytest.mark.gpu
@CASES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_cuda_an_utterance_has_the_same_loss_alone_and_padded_among_others(case, dtype):
    together = case.to(dtype, "cuda")
    losses = together.losses()
    [encoded] = torch.autograd.grad(losses.sum(), together.parts[:1])
    for row in range(len(losses)):
        alone = together.alone(row)
        loss = alone.losses()
        [own] = torch.autograd.grad(loss.sum(), alone.parts[:1])
        assert torch.equal(loss[0], losses[row])
        # The library's products may be cut otherwise for other numbers of rows.
        assert distance(own[0], encoded[row, : own.shape[1]]) < (1e-6 if dtype == torch.float32 else 4e-3)


@pytest.mark.gpu
def test_on_cuda_autocast_chooses_the_type_of_the_products_and_gradients_keep_their_own():
    case = ON_DEVICE["tokens and a blank"].to(torch.float32, "cuda")
    with torch.autocast("cuda", torch.bfloat16):
        losses = case.losses()
    narrow = Case(*(getattr(case.to(torch.bfloat16, "cuda"), name) for name in Case.__dataclass_fields__))
    assert torch.equal(losses, narrow.losses())
    assert all(part.dtype == torch.float32 for part in gradients(losses, case))


@pytest.mark.gpu
def test_on_cuda_large_loss_scales_do_not_overflow_half_precision():
    case = ON_DEVICE["tokens and a blank"].to(torch.float32, "cuda")
    with torch.autocast("cuda", torch.float16):
        plain, scaled = case.losses().sum(), case.losses().sum() * 2.0**20
    for one, other in zip(torch.autograd.grad(plain, case.parts), torch.autograd.grad(scaled, case.parts), strict=True):
        assert torch.equal(one * 2.0**20, other)


@pytest.mark.gpu
def test_on_cuda_without_triton_plain_torch_does_it(monkeypatch):
    monkeypatch.setattr(transducer, "has_triton", lambda tensor: False)
    case = ON_DEVICE["durations"]
    ours = case.to(torch.float32, "cuda")
    assert torch.allclose(ours.losses().double().cpu(), case.losses(), rtol=1e-5)
