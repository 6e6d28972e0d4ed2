"""Archives of others are data: odd ones are refused, and nothing is left behind."""

import io
import tarfile
import zipfile

import pytest

from attune.errors import SourceError
from attune.sources import open_archive, unpack


def tar(path, *members, compression="gz"):
    with tarfile.open(path, f"w:{compression}") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                for key, value in content.items():
                    setattr(info, key, value)
                archive.addfile(info)
    return path


def zipped(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return path


def everything_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("compression", ["", "gz", "xz", "bz2"])
def test_a_tar_is_unpacked(tmp_path, compression):
    unpack(tar(tmp_path / "a.tar", ("a/b.txt", b"b"), ("c", b"c"), compression=compression), tmp_path / "out")
    assert everything_in(tmp_path / "out") == ["a", "a/b.txt", "c"]
    assert (tmp_path / "out/a/b.txt").read_bytes() == b"b"


def test_a_tar_of_a_folder_from_within_is_unpacked(tmp_path):
    folder = {"type": tarfile.DIRTYPE}
    unpack(tar(tmp_path / "a.tar", (".", folder), ("./a", folder), ("./a/b.txt", b"b")), tmp_path / "out")
    assert everything_in(tmp_path / "out") == ["a", "a/b.txt"]


def test_a_zip_is_unpacked(tmp_path):
    unpack(zipped(tmp_path / "a.zip", a__b=b"b"), tmp_path / "out")
    assert (tmp_path / "out/a/b").read_bytes() == b"b"


@pytest.mark.parametrize(
    "member",
    [
        ("../evil", b"1"),
        ("a/../../evil", b"1"),
        ("/etc/evil", b"1"),
        ("c:/evil", b"1"),
        ("a\\..\\evil", b"1"),
        ("link", {"type": tarfile.SYMTYPE, "linkname": "/etc"}),
        ("link", {"type": tarfile.LNKTYPE, "linkname": "../x"}),
        ("device", {"type": tarfile.CHRTYPE}),
        ("../folder", {"type": tarfile.DIRTYPE}),
    ],
)
def test_a_tar_that_reaches_out_is_refused_and_leaves_nothing(tmp_path, member):
    archive = tar(tmp_path / "a.tar", ("good", b"1"), member)
    with pytest.raises(SourceError, match="outside its folder|a link or a device"):
        unpack(archive, tmp_path / "deep/out")
    assert everything_in(tmp_path) == ["a.tar", "deep"]


def test_a_zip_that_reaches_out_is_refused_and_leaves_nothing(tmp_path):
    archive = zipped(tmp_path / "a.zip", **{"..__evil": b"1"})
    with pytest.raises(SourceError, match=r"names a file '../evil' outside"):
        unpack(archive, tmp_path / "out")
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as other:
        other.writestr(link, "/etc")
    with pytest.raises(SourceError, match="a link or a device"):
        unpack(tmp_path / "b.zip", tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip", "b.zip"]


def test_a_zip_bomb_is_refused_before_it_grows(tmp_path):
    archive = zipped(tmp_path / "a.zip", **{f"zeros{part}": bytes(20 << 20) for part in range(5)})
    with pytest.raises(SourceError, match=r"would unpack from [\d,]+ to more than [\d,]+ bytes in \d files"):
        unpack(archive, tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


def test_a_member_that_lies_about_its_size_is_refused(tmp_path):
    archive = zipped(tmp_path / "a.zip", zeros=bytes(1 << 20))
    raw = bytearray(archive.read_bytes())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # the size, uncompressed, in both headers
        at = raw.index(signature) + place
        raw[at : at + 4] = (100).to_bytes(4, "little")
    archive.write_bytes(raw)
    with pytest.raises(SourceError, match="[Cc]annot be read|cannot read|not a valid|larger than"):
        unpack(archive, tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


@pytest.mark.timeout(20)
def test_a_negative_size_which_leads_back_to_its_own_header_is_refused(tmp_path):
    """Python's tarfile reads that header again and again."""
    archive = tar(tmp_path / "a.tar", ("a", b"1"), ("b", {"size": -512}))
    with pytest.raises(SourceError, match="not a valid tar or zip archive: its header claims -512 bytes"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize(("flags", "method", "reason"), [(1, 8, "password required"), (0, 9, "compression.* not supp")])
def test_a_zip_that_needs_another_program_is_named(tmp_path, flags, method, reason):
    archive = zipped(tmp_path / "a.zip", a=b"a" * 100)
    raw = bytearray(archive.read_bytes())
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # flags and method, in both headers
        at = raw.index(signature) + place
        raw[at : at + 4] = bytes((flags, 0, method, 0))
    archive.write_bytes(raw)
    with pytest.raises(SourceError, match=rf"a.zip: a: .*{reason}.* Unpack it yourself"):
        unpack(archive, tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


def test_the_same_name_twice_is_refused(tmp_path):
    with pytest.raises(SourceError, match="has 'a' twice"):
        unpack(tar(tmp_path / "a.tar", ("a", b"1"), ("a", b"2")), tmp_path / "out")
    assert everything_in(tmp_path) == ["a.tar"]


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x1f\x8b\x08\x00garbage", b"\xfd7zXZ\x00garbage"])
def test_what_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(SourceError, match="is not a valid tar or zip archive"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")


def test_a_truncated_archive_is_refused_and_leaves_nothing(tmp_path):
    archive = tar(tmp_path / "a.tar", ("a", bytes(range(256)) * 4000))
    archive.write_bytes(archive.read_bytes()[:-500])
    with pytest.raises(SourceError, match="is not a valid tar or zip archive"):
        unpack(archive, tmp_path / "out")
    assert everything_in(tmp_path) == ["a.tar"]


def test_members_are_read_one_by_one(tmp_path):
    with open_archive(tar(tmp_path / "a.tar", ("a", b"1"), ("b", b"22"))) as members:
        assert [(member.name, member.open().read()) for member in members] == [("a", b"1"), ("b", b"22")]
