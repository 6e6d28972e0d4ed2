import errno
import os
import stat

import pytest
import torch
import xxhash
from safetensors.torch import load_file, save_file

from attune import files
from attune.files import LargeFile, checksum
from attune.stored_tensors import TensorToWrite, write_tensors

SIZES = (0, 1, 4096, files.BUFFER_BYTES - 1, files.BUFFER_BYTES, files.BUFFER_BYTES + 1, 2 * files.BUFFER_BYTES + 5000)


@pytest.mark.parametrize("size", SIZES)
def test_a_large_file_has_the_bytes_that_were_written(tmp_path, size):
    content = torch.randint(256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))
    whole = content.numpy().tobytes()
    with LargeFile(tmp_path / "large") as file:
        for start in range(0, size, 3_000_001):
            file.write(whole[start : start + 3_000_001])
    assert (tmp_path / "large").read_bytes() == whole


@pytest.mark.parametrize("refused", ["open", "write"])
def test_a_file_system_without_direct_writes_gets_the_same_bytes(tmp_path, monkeypatch, refused):
    """A file system in memory refuses to open so; some others refuse to write."""
    real = getattr(os, refused)
    refusals = []

    def refuse(target, content, *rest):
        if (refused == "open" and content & files.DIRECT) or (refused == "write" and not refusals):
            refusals.append(target)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(target, content, *rest)

    monkeypatch.setattr(files.os, refused, refuse)
    whole = bytes(range(256)) * (files.BUFFER_BYTES // 128)
    with LargeFile(tmp_path / "large") as file:
        file.write(whole)
    assert refusals
    assert (tmp_path / "large").read_bytes() == whole


def test_a_full_disk_is_an_error_with_its_reason(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(OSError, match="No space left"), LargeFile(tmp_path / "large") as file:
        file.write(b"x")


def test_tensors_are_written_as_safetensors_writes_them(tmp_path):
    tensors = {
        "output.weight": torch.randn(300, 9000),
        "layer.weight": torch.randn(70, 11).to(torch.bfloat16).T,
        "scale": torch.tensor(2.0, dtype=torch.float64),
        "codes": torch.arange(5, dtype=torch.uint8),
        "none": torch.empty(0, 3),
    }
    save_file({name: each.contiguous() for name, each in tensors.items()}, tmp_path / "theirs")
    found = write_tensors(tmp_path / "ours", {name: TensorToWrite.of(each) for name, each in tensors.items()})
    ours = (tmp_path / "ours").read_bytes()
    assert ours == (tmp_path / "theirs").read_bytes()
    assert found == checksum(tmp_path / "ours") == f"xxh3_128:{xxhash.xxh3_128(ours).hexdigest()}"
    assert all(torch.equal(each, tensors[name]) for name, each in load_file(tmp_path / "ours").items())


def test_a_large_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with LargeFile(tmp_path / "large") as file:
        file.write(b"x")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "large")]
    assert modes[0] == modes[1]
