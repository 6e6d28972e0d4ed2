"""Batch normalization over own frames by Triton, against plain torch in float64."""

import pytest
import torch

from attune.kernels import _norm
from attune.kernels.batch_norm import masked_batch_norm

from interpreter import in_interpreter
from norms import distances, norm_case


@pytest.mark.recipe
def test_the_kernels_compute_what_plain_torch_does_and_touch_nothing_else():
    found = in_interpreter("interpreted_norm.py")
    assert max(found["single"].values()) < 3e-6 and max(found["half"].values()) < 1e-3, found


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 3e-6), (torch.bfloat16, 8e-3)])
@pytest.mark.parametrize("frames", [3, 701, 3000])
def test_on_the_device_too(dtype, limit, frames):
    from attune.kernels import _triton_norm

    found = distances(_triton_norm, _norm, norm_case(dtype, "cuda", frames))
    assert max(found.values()) < limit, found


@pytest.mark.gpu
def test_gradients_and_sums_reach_the_leaves_in_the_same_bits_each_time():
    gradient, frames, beyond, count, weight, bias, center = norm_case(torch.bfloat16, "cuda")
    results = []
    for _ in range(2):
        leaves = [each.clone().requires_grad_() for each in (frames.transpose(1, 2), weight, bias)]
        tally = torch.zeros(3, len(weight), device="cuda", requires_grad=True)
        crosswise = leaves[0].transpose(1, 2)
        masked_batch_norm(crosswise, beyond, count, *leaves[1:], tally, center, 1e-3).backward(gradient)
        results.append([each.grad for each in (*leaves, tally)])
    plain = _norm.backward(gradient, frames, beyond, count, weight, *_norm.forward(
        frames, beyond, count, weight, bias, center, 1e-3)[1])  # fmt: skip
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    assert torch.allclose(results[0][0].transpose(1, 2), plain[0], rtol=2e-2, atol=2e-2)
    assert torch.allclose(results[0][1], plain[1], rtol=1e-3) and float(results[0][3][0, 0]) == float(count)
