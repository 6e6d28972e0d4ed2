import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.profiler import profile

from attune.kernels.transducer import Lattice, transducer_loss

from lattices import count_paths, distance, gradients, make_case

RNNT, TDT = Lattice(6), Lattice(6, durations=(0, 1, 2, 3, 4), sigma=0.05)
RAGGED = [(7, 4), (1, 0), (3, 5), (6, 0), (1, 2)]  # also no label at all, one frame, more labels than frames
LARGER = {
    "wide": make_case([(30, 12), (11, 3), (25, 0)], tokens=200, width=24),
    "long": make_case([(90, 24), (50, 23)], tokens=30, width=16),
    "durations": make_case([(40, 12), (17, 9)], 50, 16, Lattice(50, (0, 1, 2, 3, 4), sigma=0.02)),
    "tanh": make_case([(20, 9), (13, 4)], 40, 16, Lattice(40, activation="tanh")),
    "sigmoid, fastemit": make_case([(20, 9), (13, 4)], 40, 16, Lattice(40, activation="sigmoid", fastemit=0.01)),
    "durations, fastemit": make_case([(20, 9), (13, 4)], 40, 16, Lattice(40, (0, 1, 3), 0.05, fastemit=0.3)),
}
CASES = pytest.mark.parametrize("case", LARGER.values(), ids=LARGER)


@pytest.mark.parametrize("lattice", [RNNT, TDT, Lattice(6, (0, 2, 1))], ids=["rnnt", "tdt", "tdt, other order"])
def test_the_loss_is_what_counting_every_path_gives(lattice):
    case = make_case(RAGGED, 6, 5, lattice)
    counted = torch.tensor([count_paths(case, row) for row in range(len(RAGGED))], dtype=torch.float64)
    assert torch.allclose(case.reference(), counted, rtol=1e-12)
    assert torch.allclose(case.losses(), counted, rtol=1e-12)


@CASES
def test_in_float32_losses_and_gradients_are_those_of_the_definition_in_float64(case):
    expected = case.reference()
    single = case.to(torch.float32)
    losses = single.losses()
    assert losses.dtype == torch.float32
    assert torch.allclose(losses.double(), expected, rtol=1e-5)
    pairs = zip(gradients(losses, single), gradients(expected, case), strict=True)
    assert max(distance(found, wanted) for found, wanted in pairs) < 1e-5


@pytest.mark.parametrize("seed", range(8))
def test_random_sizes_agree_with_the_definition(seed):
    random = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return int(torch.randint(low, high, (), generator=random))

    sizes = [(draw(1, 12), draw(0, 10)) for _ in range(draw(1, 5))]
    case = (
        make_case(sizes, draw(1, 40), draw(1, 20), seed=seed)
        if draw(0, 2)
        else make_case(sizes, 9, 7, Lattice(9, (0, 1, 2)))
    )
    assert torch.allclose(case.losses(), case.reference(), rtol=1e-12)
    pairs = zip(gradients(case.losses(), case), gradients(case.reference(), case), strict=True)
    assert all(torch.allclose(found, wanted, rtol=1e-9, atol=1e-12) for found, wanted in pairs)


@pytest.mark.parametrize("lattice", [RNNT, replace(RNNT, activation="tanh"), TDT, replace(TDT, activation="sigmoid")])
def test_gradients_pass_gradcheck(lattice):
    case = make_case([(4, 2), (1, 0), (2, 3)], 6, 3, lattice, seed=3)
    rest = (case.targets, case.lengths, case.target_lengths, lattice)
    assert torch.autograd.gradcheck(lambda *parts: transducer_loss(*parts, *rest), case.parts)


@CASES
def test_an_utterance_has_the_same_bits_alone_and_padded_among_others(case):
    together = case.to(torch.float32)
    losses = together.losses()
    (encoded, predicted) = torch.autograd.grad(losses.sum(), together.parts[:2])
    for row in range(len(losses)):
        alone = together.alone(row)
        loss = alone.losses()
        ours, theirs = torch.autograd.grad(loss.sum(), alone.parts[:2]), (encoded, predicted)
        assert torch.equal(loss[0], losses[row])
        for mine, shared in zip(ours, theirs, strict=True):
            assert torch.equal(mine[0], shared[row, : mine.shape[1]])
            assert not shared[row, mine.shape[1] :].any()


@pytest.mark.parametrize("cells", [1, 30, 10**9])
def test_how_many_cells_are_computed_at_once_does_not_matter(cells):
    case = make_case([(12, 5), (30, 9), (1, 0)], 40, 16)
    usual, fewer = (gradients(case.losses(each), case) for each in (None, cells))
    assert torch.equal(case.losses(cells), case.losses())
    assert max(distance(found, expected) for found, expected in zip(fewer, usual, strict=True)) < 1e-12


def test_few_cells_at_once_need_little_memory():
    case = make_case([(80, 30)], 500, 16)
    largest = {}
    for cells in (None, 31):
        with profile(profile_memory=True) as profiled:
            case.losses(cells)
        largest[cells] = max(event.cpu_memory_usage for event in profiled.events())
    assert largest[31] * 8 < largest[None]


def test_what_stands_in_the_padding_does_not_matter():
    case = make_case(RAGGED, 6, 5)
    losses = case.losses()
    encoded, predicted = case.parts[:2]
    for row, (frames, labels) in enumerate(RAGGED):
        encoded.data[row, frames:] = float("nan")
        predicted.data[row, labels + 1 :] = float("nan")
        case.targets[row, labels:] = -100
    assert torch.equal(case.losses(), losses)
    assert all(torch.isfinite(part).all() for part in gradients(case.losses(), case))


def test_fastemit_changes_gradients_in_proportion_and_no_loss():
    case = make_case([(9, 4), (5, 2)], 6, 5)
    plain, some, more = (replace(case, lattice=Lattice(6, fastemit=value)) for value in (0.0, 0.1, 0.3))
    assert torch.equal(plain.losses(), more.losses())
    for a, b, c in zip(*(gradients(one.losses(), one) for one in (plain, some, more)), strict=True):
        assert torch.allclose(3 * (b - a), c - a)
        assert (c - a).abs().max() > 1e-3


def test_a_target_that_no_path_spells_has_an_infinite_loss_and_no_gradient():
    case = make_case([(3, 5), (9, 2)], 6, 5, Lattice(6, durations=(1, 2)))
    losses = case.losses()
    assert losses[0] == float("inf") and torch.isfinite(losses[1])
    encoded, *others = torch.autograd.grad(losses[1] + 0 * losses[0], case.parts)
    assert not encoded[0].any() and encoded[1].any()
    assert all(torch.isfinite(part).all() for part in others)


def test_thousands_of_nats_lose_no_precision():
    case = make_case([(400, 80)], tokens=100, width=8)
    single = case.to(torch.float32)
    losses = single.losses()
    assert losses > 1500
    pairs = zip(gradients(losses, single), gradients(case.losses(), case), strict=True)
    assert max(distance(found, wanted) for found, wanted in pairs) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_inputs_get_float32_losses_and_gradients_of_their_own_type(dtype):
    case = LARGER["wide"].to(dtype)
    exact = case.to(torch.float64)
    losses = case.losses()
    assert losses.dtype == torch.float32
    assert torch.allclose(losses.double(), exact.losses(), rtol=1e-5)
    found = gradients(losses, case)
    assert all(part.dtype == dtype for part in found)
    pairs = zip(found, gradients(exact.losses(), exact), strict=True)
    assert max(distance(one, wanted) for one, wanted in pairs) < 1e-2


def test_autocast_leaves_the_loss_in_float32():
    case = LARGER["wide"].to(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        losses = case.losses()
    assert torch.equal(losses, case.losses())


def golden(name: str) -> Path:
    """NeMo's own results, in a folder `shared` beside or above the checkout."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "shared" / "fixtures" / name
        if folder.is_dir():
            return folder
    pytest.skip(f"needs NeMo's results {name}")


@pytest.mark.parametrize(("sigma", "name"), [(0.0, "tdt_sigma0_omega0"), (0.02, "tdt_sigma0.02_omega0")])
def test_durations_give_the_losses_of_nemo(sigma, name):
    folder = golden("nemo-fastconformer-tdt")
    with tarfile.open(folder / "model.nemo") as archive:
        checkpoint = archive.extractfile("./model_weights.ckpt").read()
    weights = torch.load(io.BytesIO(checkpoint), weights_only=True)
    known = load_file(folder / "expected.safetensors")
    for number, clip in enumerate(json.loads((folder / "expected.json").read_text())["clips"]):
        encoded = known[f"alone.{number}.encoder"].T @ weights["joint.enc.weight"].T + weights["joint.enc.bias"]
        predicted = known[f"alone.{number}.pred"].T @ weights["joint.pred.weight"].T + weights["joint.pred.bias"]
        [loss] = transducer_loss(
            encoded[None],
            predicted[None],
            weights["joint.joint_net.2.weight"],
            weights["joint.joint_net.2.bias"],
            torch.tensor([clip["token_ids"]]),
            torch.tensor([clip["encoder_frames"]]),
            torch.tensor([len(clip["token_ids"])]),
            Lattice(96, (0, 1, 2, 3, 4), sigma=sigma),
        )
        assert float(loss) == pytest.approx(clip["loss"][name], rel=1e-5)


@pytest.mark.parametrize(("name", "more"), [("lengths", 1), ("target_lengths", 1), ("targets", None)])
def test_lengths_beyond_the_tensors_are_refused(name, more):
    case = make_case([(6, 3), (4, 5)], 9, 8)
    given = getattr(case, name)
    with pytest.raises(ValueError, match="do not fit"):
        replace(case, **{name: given[:, :-1] if more is None else given + more}).losses()
