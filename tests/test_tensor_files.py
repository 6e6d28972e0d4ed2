"""Files of tensors that lie: each is refused in bounded time and memory, with a reason."""

import io
import pickle
import struct
import zipfile

import pytest
import torch

from attune.tensor_files import BadTensorFile, read_pickled, require_bounded


def saved(value, **how) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **how)
    return file.getvalue()


def read(content: bytes):
    return read_pickled(io.BytesIO(content), len(content))


def with_pickle(pickled: bytes) -> bytes:
    """A checkpoint of torch's with another pickle in it."""
    source, file = zipfile.ZipFile(io.BytesIO(saved({"a": torch.ones(4)}))), io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in source.namelist():
            archive.writestr(name, pickled if name.endswith("data.pkl") else source.read(name))
    return file.getvalue()


@pytest.mark.parametrize("is_zip", [True, False])
def test_what_torch_saves_is_read(is_zip):
    shared = torch.arange(6.0).reshape(2, 3)
    value = {"a": shared, "b": shared.t(), "c": torch.nn.Parameter(torch.ones(2)), "dims": {"n": 3}}
    found = read(saved(value, _use_new_zipfile_serialization=is_zip))
    assert torch.equal(found["b"], shared.t()) and found["dims"] == {"n": 3}
    require_bounded({name: found[name] for name in "abc"}, 1000)


@pytest.mark.parametrize("is_zip", [True, False])
def test_the_state_of_an_optimizer_beside_weights_is_read(is_zip):
    """Its groups have one tuple of betas in common."""
    one, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([{"params": [one]}, {"params": [other], "weight_decay": 0.0}])
    held = {"Optimizer": optimizer.state_dict(), "a": one.detach(), "several": [(1, 2.0, 3)] * 2}
    found = read(saved(held, _use_new_zipfile_serialization=is_zip))
    assert [group["betas"] for group in found["Optimizer"]["param_groups"]] == [(0.9, 0.999)] * 2
    assert found["several"] == [(1, 2.0, 3)] * 2


def test_one_flipped_bit_of_a_weight_is_found():
    content = bytearray(saved({"a": torch.full((64,), 2.5)}))
    content[content.index(struct.pack("<4f", 2.5, 2.5, 2.5, 2.5))] ^= 1
    with pytest.raises(BadTensorFile, match=r"the checksum of '.*data/0' is wrong"):
        read(bytes(content))


@pytest.mark.timeout(20)
def test_a_key_of_tuples_within_tuples_does_not_take_forever():
    inner = ()
    for _ in range(20):
        inner = (inner,) * 8
    for content in (with_pickle(b"\x80\x02}q\x00" + pickle.dumps(inner, 2)[2:-1] + b"K\x01s."), pickle.dumps(inner, 2)):
        with pytest.raises(BadTensorFile, match="a tuple in several places"):
            read(content)


def test_a_zip_behind_other_content_does_not_get_that_past_the_checks():
    """Python finds a zip by its end; torch looks at the first bytes, and would read the pickles there."""
    inner = ()
    for _ in range(6):
        inner = (inner,) * 8
    key = b"\x80\x02}q\x00" + pickle.dumps(inner, 2)[2:-1] + b"K\x01s."
    whole = saved({}, _use_new_zipfile_serialization=False)
    legacy = io.BytesIO(whole)
    for _ in range(3):  # the magic number, the version, the machine
        pickle.load(legacy)
    before = whole[: legacy.tell()]
    with pytest.raises(BadTensorFile, match="begins with something else than its first member"):
        read(before + key + pickle.dumps([], 2) + saved({"a": torch.ones(4)}))


def test_compressed_and_overlapping_members_are_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10_000_000))
    with pytest.raises(BadTensorFile, match="compressed"):
        read(file.getvalue())


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (lambda: torch.ones(1).expand(8 << 30), "claims 34,359,738,368 bytes, but 4 are stored"),
        (lambda: torch.ones(4).to_sparse(), "sparse, quantized, complex or empty"),
        (lambda: torch.ones(4, dtype=torch.complex64), "complex"),
        (lambda: torch.empty(1 << 40, device="meta"), "complex or empty"),
        (lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8), "quantized"),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_that_are_not_plain_numbers_are_refused(tensor, reason):
    with pytest.raises(BadTensorFile, match=reason):
        require_bounded({"a": tensor()}, 1 << 20)


def test_tensors_that_share_memory_a_thousand_times_are_refused():
    one = torch.ones(1000)
    require_bounded({"a": one, "b": one}, 4000)
    with pytest.raises(BadTensorFile, match="claim 4,000,000 bytes, but the file has 4,000"):
        require_bounded({f"a{number}": one for number in range(1000)}, 4000)
