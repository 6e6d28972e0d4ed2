"""Uploads a folder to S3 so that it appears whole: a claim first, then the files, and last the list of them.

Readers go by the list, and refuse a prefix that has a claim and no list. Where the server supports conditional puts,
two pushes to one prefix cannot mix: the first claim holds.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attune.errors import SourceError
from attune.files import parse_json, sha256
from attune.sources._s3_client import status_of
from attune.sources._s3_objects import ObjectStore
from attune.sources._verify import checked_sha256

BEGUN, FILES = "attune-begun.json", "attune-files.json"


def push_folder(
    folder: Path,
    client: Any,
    bucket: str,
    prefix: str,
    address: str,
    sent: Callable[[int], None] = lambda size: None,
) -> None:
    """Upload, or continue an interrupted upload of the same files; `sent` gets the bytes of each part."""
    listing, names = _listing(folder)
    _require_free(client, bucket, prefix, address)
    _claim(client, bucket, f"{prefix}{BEGUN}", listing, address)
    for name in names:
        _upload(client, folder / name, bucket, f"{prefix}{name}", sent)
    if not _put_if_absent(client, bucket, f"{prefix}{FILES}", listing):
        raise SourceError(f"{address}: another push finished first. Choose another prefix.")
    client.delete_object(Bucket=bucket, Key=f"{prefix}{BEGUN}")


def replace_pushed(folder: Path, store: ObjectStore, below: str) -> None:
    """Have a folder in the place of the one that was pushed before; it is whole or absent meanwhile."""
    listing, names = _listing(folder)
    if store.read(f"{below}{FILES}") == listing:
        return
    store.write(f"{below}{BEGUN}", listing)
    store.delete([f"{below}{FILES}"])
    for name in names:
        store.upload(f"{below}{name}", folder / name)
    kept = {f"{below}{name}" for name in (*names, BEGUN)}
    store.delete(sorted(store.list(below).keys() - kept))
    store.write(f"{below}{FILES}", listing)
    store.delete([f"{below}{BEGUN}"])


def _listing(folder: Path) -> tuple[bytes, list[str]]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files = {name: {"sha256": sha256(folder / name), "size": (folder / name).stat().st_size} for name in names}
    return json.dumps({"format": 1, "files": files}, indent=1).encode(), names


def _upload(client: Any, path: Path, bucket: str, key: str, sent: Callable[[int], None]) -> None:
    from boto3.exceptions import S3UploadFailedError

    try:
        client.upload_file(str(path), bucket, key, Callback=sent)
    except S3UploadFailedError as error:
        raise error.__context__ or error from None  # the server's own error


def read_files(client: Any, bucket: str, prefix: str) -> Mapping[str, str]:
    """The SHA-256 of each file that was pushed below a prefix."""
    body = client.get_object(Bucket=bucket, Key=f"{prefix}{FILES}")["Body"].read()
    try:
        return {name: checked_sha256(file["sha256"]) for name, file in parse_json(body)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"s3://{bucket}/{prefix}{FILES} is damaged ({error!r}). Push the model again.") from error


def _require_free(client: Any, bucket: str, prefix: str, address: str) -> None:
    found = client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1000).get("Contents", ())
    names = {each["Key"].removeprefix(prefix) for each in found}
    if FILES in names or (names and BEGUN not in names):
        raise SourceError(f"{address} is not empty: it has {', '.join(sorted(names)[:5])}. Choose another prefix.")


def _claim(client: Any, bucket: str, key: str, listing: bytes, address: str) -> None:
    if _put_if_absent(client, bucket, key, listing):
        return
    if client.get_object(Bucket=bucket, Key=key)["Body"].read() != listing:
        raise SourceError(
            f"{address} has an unfinished push of other files, or one that is still running. "
            f"Choose another prefix, or remove {BEGUN} if it was abandoned."
        )


def _put_if_absent(client: Any, bucket: str, key: str, body: bytes) -> bool:
    from botocore.exceptions import ClientError

    try:
        client.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")
    except ClientError as error:
        if status_of(error) in (409, 412):
            return False
        raise
    return True
