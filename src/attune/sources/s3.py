"""S3 and what speaks like it: `s3://bucket/key`, or `s3://bucket/prefix/` for all that lies below.

Credentials, region and endpoint are boto3's business: AWS_* in the environment, AWS_PROFILE, ~/.aws, a machine's role.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from attune.errors import SourceError
from attune.sources import Source
from attune.sources._addresses import read_s3
from attune.sources._cache import Cache, Entry, Patience
from attune.sources._fetch import CHUNK, Ask, Body, Listing, Remote, StartOver, TryAgain, Unchanged, bring
from attune.sources._s3_push import BEGUN, FILES, push_folder, read_files
from attune.sources._s3_talk import open_client, told
from attune.sources._verify import Hashes

_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class _Place:
    """A bucket and a key or prefix in it, and who asks for it."""

    address: str
    bucket: str
    key: str
    client: Any


def find(address: str, cache: Cache) -> Path:
    """The object as a file, or the objects below a prefix as a folder."""
    bucket, key = read_s3(address)

    def ask(known: Entry | None, locked: Entry | None) -> Listing:
        place = _Place(address, bucket, key, open_client(cache.patience))
        with told(address):
            return _ask(place, known, locked)

    return bring(address, ask, cache)


def push(folder: Path, address: str, message: str) -> str:
    """Upload all files of a folder below a prefix; they count as there when all of them are."""
    bucket, key = read_s3(address)
    prefix = key if key.endswith("/") or not key else f"{key}/"
    with told(address, retries=False):
        push_folder(folder, open_client(Patience(), retries=5), bucket, prefix, address)
    return f"s3://{bucket}/{prefix}"


def beside(address: str, names: Sequence[str], cache: Cache) -> Ask:
    """Objects below the same prefix."""
    bucket, key = read_s3(address)
    folder = key.rpartition("/")[0]

    def ask(known: Entry | None, locked: Entry | None) -> Listing:
        place = _Place(address, bucket, f"{folder}/" if folder else "", open_client(cache.patience))
        with told(address):
            return _ask_folder(place, known, names)

    return ask


def _ask(place: _Place, known: Entry | None, locked: Entry | None) -> Listing:
    head = None if place.key.endswith("/") or not place.key else _head(place, locked)
    if head is None:
        return _ask_folder(place, known)
    version = head.get("VersionId") if head.get("VersionId") != "null" else None
    revision = version or head["ETag"]
    if known and known.revision == revision:
        raise Unchanged
    name = PurePosixPath(place.key).name
    remote = _remote(place, place.key, head["ContentLength"], head["ETag"], _hashes(place, place.key, head), version)
    return Listing({name: remote}, revision)


def _head(place: _Place, locked: Entry | None) -> dict[str, Any] | None:
    """What is known of the object, or nothing if there is none of that name."""
    from botocore.exceptions import ClientError

    words = {"Bucket": place.bucket, "Key": place.key}
    if locked and not locked.is_folder and not locked.revision.startswith('"'):
        words["VersionId"] = locked.revision
    try:
        head: dict[str, Any] = place.client.head_object(ChecksumMode="ENABLED", **words)
        return head
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if status == 404:
            return None
        if 400 <= status < 500:
            place.client.get_object(**words, Range="bytes=0-0")  # fails too, and says why
        raise


def _ask_folder(place: _Place, known: Entry | None, names: Sequence[str] | None = None) -> Listing:
    prefix = place.key if place.key.endswith("/") or not place.key else f"{place.key}/"
    found = {each["Key"].removeprefix(prefix): each for each in _list(place, prefix) if not each["Key"].endswith("/")}
    if not found:
        raise SourceError(
            f"{place.address}: there is nothing of that name in the bucket {place.bucket}. Check the key; "
            "names in S3 are exact to the letter."
        )
    if BEGUN in found and FILES not in found:
        raise SourceError(f"{place.address}: a push to it was begun and not finished. Push again to complete it.")
    told_by_push = read_files(place.client, place.bucket, prefix) if FILES in found else {}
    found = {name: each for name, each in found.items() if name not in (FILES, BEGUN)}
    if names or told_by_push:
        found = _named(place, found, names or list(told_by_push))
    state = sorted(f"{name} {each['ETag']} {each['Size']}" for name, each in found.items())
    revision = hashlib.sha256("\n".join(state).encode()).hexdigest()[:32]
    if known and known.revision == revision:
        raise Unchanged
    files = {}
    for name, each in found.items():
        sha256 = told_by_push.get(name)
        hashes = Hashes(sha256=sha256) if sha256 else _hashes(place, each["Key"], each)
        files[name] = _remote(place, each["Key"], each["Size"], each["ETag"], hashes, None)
    return Listing(files, revision, is_folder=True)


def _named(place: _Place, found: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    missing = [name for name in names if name not in found]
    if missing:
        raise SourceError(
            f"{place.address} names {missing[0]}, and there is no {place.key}{missing[0]} in the bucket {place.bucket} "
            f"({len(missing)} are missing in all)."
        )
    return {name: found[name] for name in names}


def _list(place: _Place, prefix: str) -> Iterable[Mapping[str, Any]]:
    pages = place.client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=prefix)
    return [each for page in pages for each in page.get("Contents", ())]


def _hashes(place: _Place, key: str, head: Mapping[str, Any]) -> Hashes:
    """What the object's headers say of its content, in whichever way it was uploaded."""
    checksum = head.get("ChecksumSHA256", "")
    if checksum and "-" not in checksum:
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
    """An upload in parts can be checked when the server tells how large the first was."""
    from botocore.exceptions import ClientError

    try:
        first = place.client.head_object(Bucket=place.bucket, Key=key, PartNumber=1)
    except ClientError:
        return Hashes()
    counted = first.get("PartsCount") == int(tag.rpartition("-")[2])
    return Hashes(parts=(tag, int(first["ContentLength"]))) if counted else Hashes()


def _remote(place: _Place, key: str, size: int, tag: str, hashes: Hashes, version: str | None) -> Remote:
    return Remote(partial(_open, place, key, tag, version), size, tag, hashes)


@contextmanager
def _open(place: _Place, key: str, tag: str, version_id: str | None, start: int, version: str | None) -> Iterator[Body]:
    from botocore.exceptions import ClientError

    words: dict[str, Any] = {"Bucket": place.bucket, "Key": key, "IfMatch": tag}
    if start:
        words["Range"] = f"bytes={start}-"
    else:
        words["ChecksumMode"] = "ENABLED"
    if version_id:
        words["VersionId"] = version_id
    with told(place.address):
        try:
            answer = place.client.get_object(**words)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in (412, 416):
                raise StartOver("the object has changed on the way") from error
            raise
    begins = int(answer["ContentRange"].split()[1].partition("-")[0]) if "ContentRange" in answer else 0
    with answer["Body"] as stream:
        yield Body(_chunks(stream), begins, begins + int(answer["ContentLength"]), tag)


def _chunks(stream: Any) -> Iterator[bytes]:
    from botocore.exceptions import FlexibleChecksumError, HTTPClientError, IncompleteReadError
    from urllib3.exceptions import HTTPError

    while True:
        try:
            chunk = stream.read(CHUNK)
        except FlexibleChecksumError as error:
            raise StartOver(str(error)) from error
        except (HTTPClientError, IncompleteReadError, HTTPError, OSError) as error:
            raise TryAgain(f"{type(error).__name__}: {error}") from error
        if not chunk:
            return
        yield chunk


SOURCE = Source(find, push, beside)
