"""Untrusted archives, read member by member: nothing is written outside the folder, or beyond its declared size."""

import lzma
import re
import shutil
import stat
import tarfile
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Self, TypeVar

from attune.errors import SourceError
from attune.files import sync

Header = TypeVar("Header", bound=tarfile.TarInfo)
MOST_FILES = 2_000_000
MOST_BYTES = 1 << 40
MOST_RATIO = 1000  # the best that text compresses; audio and weights hardly do
SMALL = 64 << 20  # the ratio is not checked below this
MOST_NAME_BYTES = 1_000_000  # of a long name, or other attributes
_DESCRIBING = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive; it is read only while the archive is open."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


class TarHeader(tarfile.TarInfo):
    """A header that is not believed: a name or an attribute of gigabytes would be read into memory at once."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """A header as it is in the archive."""
        member = super().frombuf(buf, encoding, errors)
        if require_size(member).type in _DESCRIBING and member.size > MOST_NAME_BYTES:
            raise tarfile.ReadError(f"its header claims {member.size:,} bytes")
        return member


def require_size(member: Header) -> Header:
    """The header; refused where its size is negative, as an attribute before it may claim: it would be read again."""
    if member.size < 0:
        raise tarfile.ReadError(f"its header claims {member.size:,} bytes")
    return member


def require_inside(name: str, where: str) -> PurePosixPath:
    """An untrusted name as a relative path; `..`, a root, a drive or a scheme in it are refused."""
    path = PurePosixPath(name)
    is_odd = not path.parts or "\\" in name or "\0" in name or re.match(r"[A-Za-z][\w+.-]*:", name)
    if is_odd or path.is_absolute() or ".." in path.parts:
        raise SourceError(f"{where} names a file {name!r} outside its folder. It is refused.")
    return path


@contextmanager
def open_archive(path: Path) -> Iterator[Iterator[Member]]:
    """The regular files of a tar (compressed or not) or zip archive; links, devices and unsafe names are refused."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield _checked(path, _zip_members(path, archive))
        else:
            with tarfile.open(path, tarinfo=TarHeader) as archive:
                yield _checked(path, _tar_members(path, archive))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise SourceError(f"{path} is not a valid tar or zip archive: {error}. Download it again.") from error


def unpack(archive: Path, folder: Path) -> None:
    """All files of an archive; the folder appears whole or not at all."""
    if folder.exists():
        raise SourceError(f"{folder} already exists. Remove it, or unpack {archive} elsewhere.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        partial.mkdir()
        with open_archive(archive) as members:
            for member in members:
                _write(member, partial, archive)
        sync(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(member: Member, folder: Path, archive: Path) -> None:
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        raise SourceError(f"{archive} has {member.name!r} twice. It is refused.")
    left = member.size
    with member.open() as file, path.open("xb") as out:
        while chunk := file.read(min(1 << 20, left + 1)):
            left -= len(chunk)
            if left < 0:
                raise SourceError(
                    f"{archive}: {member.name} is larger than the {member.size:,} bytes it claims. Download it again."
                )
            out.write(chunk)


def _checked(archive: Path, members: Iterator[Member]) -> Iterator[Member]:
    """Members whose paths and sizes are plausible."""
    total, limit = 0, max(SMALL, MOST_RATIO * archive.stat().st_size)
    for count, member in enumerate(members, 1):
        require_inside(member.name, str(archive))
        total += member.size
        if total > min(limit, MOST_BYTES) or count > MOST_FILES:
            raise SourceError(
                f"{archive} would unpack from {archive.stat().st_size:,} to more than {total:,} bytes in {count:,} "
                "files. It is refused as a decompression bomb."
            )
        yield member


def _tar_members(path: Path, archive: tarfile.TarFile) -> Iterator[Member]:
    for info in map(require_size, archive):
        if info.isdir():
            if info.name != ".":  # the folder that was packed from within
                require_inside(info.name, str(path))
        elif info.isreg() and not info.issparse():
            yield Member(info.name, info.size, lambda info=info: _opened(path, archive, info))  # type: ignore[misc]
        else:
            raise SourceError(f"{path} has {info.name!r}, which is a link or a device, not a file. It is refused.")


def _opened(path: Path, archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(info)
    if file is None:
        raise SourceError(f"{path}: cannot read {info.name}. Download it again.")
    return file


def _opened_zip(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return archive.open(info)
    except RuntimeError as error:  # a password, or a kind of compression that Python does not have
        raise SourceError(f"{path}: {info.filename}: {error}. Unpack it yourself, and give the folder.") from error


def _zip_members(path: Path, archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.is_dir():
            require_inside(info.filename, str(path))
        elif kind in (0, stat.S_IFREG):
            yield Member(info.filename, info.file_size, lambda info=info: _opened_zip(path, archive, info))  # type: ignore[misc]
        else:
            raise SourceError(f"{path} has {info.filename!r}, which is a link or a device. It is refused.")
