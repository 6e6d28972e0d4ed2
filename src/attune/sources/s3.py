"""S3 and compatible servers: `s3://bucket/key`, or `s3://bucket/prefix/` for all objects below it.

boto3 finds credentials, region and endpoint: AWS_* in the environment, AWS_PROFILE, ~/.aws, a machine's role.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from attune.errors import SourceError
from attune.files import folder_bytes
from attune.sources import ByteRanges, Source
from attune.sources._addresses import read_s3
from attune.sources._cache import Cache, Entry, Watch, unwatched
from attune.sources._fetch import Body, ListFiles, Listing, RemoteFile, fetch
from attune.sources._retry import NotModified, RetryableError, RetryPolicy, collect
from attune.sources._s3_client import (
    CredentialsExpired,
    forget_shared_clients,
    open_client,
    read_chunks,
    shared_client,
    status_of,
    translated_errors,
)
from attune.sources._s3_push import BEGUN, FILES, push_folder, read_files
from attune.sources._uploads import UploadedBytes
from attune.sources._verify import Hashes

MOST_PAGES = 2000  # of a listing, with a thousand objects each
_MD5 = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9A-Za-z+/]{43}=")  # of a whole object, in base64; that of one in parts ends in their number


@dataclass(slots=True)
class _Place:
    """A bucket and a key or prefix in it, and the client to reach it: another one when its credentials have expired."""

    address: str
    bucket: str
    key: str
    client: Any


def find(address: str, cache: Cache) -> Path:
    """The object as a file, or the objects below a prefix as a folder."""
    bucket, key = read_s3(address)

    def list_files(known: Entry | None, locked: Entry | None) -> Listing:
        place = _Place(address, bucket, key, open_client(cache.retry))
        with translated_errors(address):
            return _list_files(place, known, locked)

    return fetch(address, list_files, cache)


def push(folder: Path, address: str, message: str, watch: Watch = unwatched) -> str:
    """Upload all files of a folder below a prefix; they count as there when all of them are."""
    bucket, key = read_s3(address)
    prefix = key if key.endswith("/") or not key else f"{key}/"
    try:
        with translated_errors(address):
            # boto3 repeats each part of an upload; to begin the whole push again would send gigabytes twice.
            sent = UploadedBytes(address, folder_bytes(folder), watch)
            push_folder(folder, open_client(RetryPolicy(), attempts=5), bucket, prefix, address, sent)
    except RetryableError as failure:
        raise SourceError(
            f"Upload to {address} failed: {failure}. The model is not there yet. Check the network and "
            "AWS_ENDPOINT_URL, and push again."
        ) from failure
    return f"s3://{bucket}/{prefix}"


def beside(address: str, names: Sequence[str], cache: Cache) -> ListFiles:
    """Objects below the same prefix."""
    bucket, key = read_s3(address)
    folder = key.rpartition("/")[0]

    def list_files(known: Entry | None, locked: Entry | None) -> Listing:
        place = _Place(address, bucket, f"{folder}/" if folder else "", open_client(cache.retry))
        with translated_errors(address):
            return _list_folder(place, known, names)

    return list_files


def read_range(address: str, start: int, length: int) -> bytes:
    """Bytes of an object, fewer only where it ends."""
    from botocore.exceptions import ClientError

    bucket, key = read_s3(address)
    with _with_new_credentials(), translated_errors(address):
        try:
            answer = shared_client().get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{start + length - 1}")
        except ClientError as error:
            if status_of(error) == 416:
                return b""
            raise
    with closing(answer["Body"]) as stream:  # as a context manager it would skip its own checks
        return collect(read_chunks(address, stream))


@contextmanager
def _with_new_credentials() -> Iterator[None]:
    """Read expired credentials again, for the next try: they may have been renewed."""
    try:
        yield
    except CredentialsExpired as error:
        forget_shared_clients()
        raise RetryableError(str(error)) from error


def size_of(address: str) -> int:
    """The size of an object in bytes."""
    with _with_new_credentials(), translated_errors(address):
        place = _Place(address, *read_s3(address), shared_client())
        head = _head(place, None)
    if head is None:
        raise _missing(place)
    return int(head["ContentLength"])


def list_prefix(address: str) -> list[str]:
    """The addresses of the objects whose keys begin with a prefix."""
    bucket, prefix = read_s3(address)
    with _with_new_credentials(), translated_errors(address):
        keys = [each["Key"] for each in _list(_Place(address, bucket, prefix, shared_client()), prefix)]
    return sorted(f"s3://{bucket}/{key}" for key in keys)


def _list_files(place: _Place, known: Entry | None, locked: Entry | None) -> Listing:
    head = None if place.key.endswith("/") or not place.key else _head(place, locked)
    if head is None:
        return _list_folder(place, known)
    version = head.get("VersionId") if head.get("VersionId") != "null" else None
    revision = version or head["ETag"]
    if known and known.revision == revision:
        raise NotModified
    name = PurePosixPath(place.key).name
    remote = _remote(place, place.key, head["ContentLength"], head["ETag"], _hashes(place, place.key, head), version)
    return Listing({name: remote}, revision)


def _head(place: _Place, locked: Entry | None) -> dict[str, Any] | None:
    """The object's metadata; None if there is no such key."""
    from botocore.exceptions import ClientError

    options = {"Bucket": place.bucket, "Key": place.key}
    if locked and not locked.is_folder and not locked.revision.startswith('"'):
        options["VersionId"] = locked.revision
    try:
        head: dict[str, Any] = place.client.head_object(ChecksumMode="ENABLED", **options)
        return head
    except ClientError as error:
        if status_of(error) == 404:
            return None
        if status_of(error) < 500:
            place.client.get_object(**options, Range="bytes=0-0")  # fails too, with the reason in its body
        raise


def _list_folder(place: _Place, known: Entry | None, names: Sequence[str] | None = None) -> Listing:
    prefix = place.key if place.key.endswith("/") or not place.key else f"{place.key}/"
    found = {each["Key"].removeprefix(prefix): each for each in _list(place, prefix) if not each["Key"].endswith("/")}
    if not found:
        raise _missing(place)
    if BEGUN in found and FILES not in found:
        raise SourceError(f"{place.address}: an unfinished push. Push again to complete it.")
    pushed = read_files(place.client, place.bucket, prefix) if FILES in found else {}
    found = {name: each for name, each in found.items() if name not in (FILES, BEGUN)}
    if names or pushed:
        found = _named(place, found, names or list(pushed))
    state = sorted(f"{name} {each['ETag']} {each['Size']}" for name, each in found.items())
    revision = hashlib.sha256("\n".join(state).encode()).hexdigest()[:32]
    if known and known.revision == revision:
        raise NotModified
    files = {}
    for name, each in found.items():
        sha256 = pushed.get(name)
        hashes = Hashes(sha256=sha256) if sha256 else _hashes(place, each["Key"], each)
        files[name] = _remote(place, each["Key"], each["Size"], each["ETag"], hashes, None)
    return Listing(files, revision, is_folder=True)


def _missing(place: _Place) -> SourceError:
    return SourceError(f"{place.address}: no such key in the bucket {place.bucket}. Check it; keys are case-sensitive.")


def _named(place: _Place, found: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    missing = [name for name in names if name not in found]
    if missing:
        raise SourceError(
            f"{place.address} names {missing[0]}, but the bucket {place.bucket} has no {place.key}{missing[0]} "
            f"({len(missing)} missing in total)."
        )
    return {name: found[name] for name in names}


def _list(place: _Place, prefix: str) -> Iterable[Mapping[str, Any]]:
    pages = iter(place.client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=prefix))
    found = [each for page in islice(pages, MOST_PAGES) for each in page.get("Contents", ())]
    if next(pages, None) is not None:
        raise SourceError(f"{place.address}: more than {len(found):,} objects. Choose a longer prefix.")
    if not all({"Key", "ETag", "Size"} <= each.keys() for each in found):
        raise SourceError(f"{place.address}: the server's listing lacks keys, sizes or ETags. Check AWS_ENDPOINT_URL.")
    return found


def _hashes(place: _Place, key: str, head: Mapping[str, Any]) -> Hashes:
    """The hashes in the object's metadata, which depend on how it was uploaded."""
    checksum = str(head.get("ChecksumSHA256", ""))
    if _SHA256.fullmatch(checksum):
        return Hashes(sha256=base64.b64decode(checksum).hex())
    if str(head.get("ServerSideEncryption", "")).startswith("aws:kms") or head.get("SSECustomerAlgorithm"):
        return Hashes()  # the ETag is not of the content then
    tag = str(head["ETag"]).strip('"')
    if _MD5.fullmatch(tag):
        return Hashes(md5=tag)
    if re.fullmatch(r"[0-9a-f]{32}-\d+", tag):
        return _hashes_of_parts(place, key, tag)
    return Hashes()


def _hashes_of_parts(place: _Place, key: str, tag: str) -> Hashes:
    """A multipart upload can be verified if the server reports the size of its first part."""
    from botocore.exceptions import ClientError

    try:
        first = place.client.head_object(Bucket=place.bucket, Key=key, PartNumber=1)
    except ClientError:
        return Hashes()
    counted = first.get("PartsCount") == int(tag.rpartition("-")[2])
    return Hashes(parts=(tag, int(first["ContentLength"]))) if counted else Hashes()


def _remote(place: _Place, key: str, size: int, tag: str, hashes: Hashes, version: str | None) -> RemoteFile:
    return RemoteFile(partial(_open, place, key, tag, version), size, tag, hashes)


@contextmanager
def _open(place: _Place, key: str, tag: str, version_id: str | None, start: int, version: str | None) -> Iterator[Body]:
    from botocore.exceptions import ClientError

    options: dict[str, Any] = {"Bucket": place.bucket, "Key": key, "IfMatch": tag}
    if start:
        options["Range"] = f"bytes={start}-"
    else:
        options["ChecksumMode"] = "ENABLED"
    if version_id:
        options["VersionId"] = version_id
    try:
        with translated_errors(place.address):
            try:
                answer = place.client.get_object(**options)
            except ClientError as error:
                if status_of(error) in (412, 416):
                    raise RetryableError("the object changed during the download", restart=True) from error
                raise
    except CredentialsExpired as error:  # since the listing: what is here already is worth another try
        place.client = open_client(RetryPolicy())
        raise RetryableError(str(error)) from error
    begin = _begin(answer, start)
    with closing(answer["Body"]) as stream:
        yield Body(read_chunks(place.address, stream), begin, None, tag)


def _begin(answer: Mapping[str, Any], start: int) -> int:
    """The first byte of an answer; its size is known from the listing."""
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    if status not in (200, 206) or (status == 206 and not start):
        raise RetryableError(f"the server answered {status} where {'a part' if start else 'the object'} was requested")
    if status == 200:
        return 0
    found = re.match(r"bytes ([0-9]{1,18})-", answer.get("ContentRange", ""))
    if not found:
        raise RetryableError("the server sent a part without a Content-Range of bytes")
    return int(found[1])


SOURCE = Source(find, push, beside, ByteRanges(read_range, size_of, list_prefix))
