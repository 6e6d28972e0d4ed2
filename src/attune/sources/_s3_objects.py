"""Objects below a prefix of an S3 store, for those who write there: each request waits through faults, bounded.

A fault is reported once, and once more when it is over; a process that has to stop does not wait for its end. Uploads
carry their MD5, which servers check; large files go in parts, of which nothing is visible until all are there.
"""

import base64
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from attune.errors import Preempted, SourceError
from attune.files import completed
from attune.sources._addresses import read_s3
from attune.sources._retry import RetryableError, RetryPolicy
from attune.sources._s3_client import CredentialsExpired, open_client, read_chunks, status_of, translated_errors

T = TypeVar("T")
PART_BYTES = 16 << 20
MOST_PARTS = 9_000  # S3 takes 10,000
THREADS = 4
FIRST_WAIT, LONGEST_WAIT = 0.25, 5.0
STOP_SECONDS = 5.0  # that a request may fail for when the process has to stop
LOOK_SECONDS = 0.2  # between two looks whether it has to
STORE_ADVICE = "Check the network, AWS_ENDPOINT_URL and the credentials, and run the same command again."
SILENT_SECONDS = 20.0  # an open connection that brings nothing for so long has failed


class Refused(Exception):
    """A conditional put whose condition does not hold: somebody else has written the object."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a listing has of an object."""

    size: int
    tag: str


class ObjectStore:
    """The objects below `s3://BUCKET/PREFIX`, by their names there."""

    def __init__(
        self,
        address: str,
        patience: float,
        report: Callable[[str], None],
        sent: Callable[[int], None] = lambda size: None,
        stop_requested: Callable[[], bool] = lambda: False,
        advice: str = STORE_ADVICE,
    ) -> None:
        """A server that does not answer is waited for `patience` seconds, reported by `report`, or until a stop.

        `sent` gets the size of each part of a file that is there. `advice` is for who has waited in vain.
        """
        self.address = address.rstrip("/")
        self.bucket, key = read_s3(f"{self.address}/")
        self.prefix = key
        self._patience, self._report, self._sent, self._stop_requested = patience, report, sent, stop_requested
        self._advice = advice
        self._lock = threading.Lock()
        self._client: Any = None
        self._away_since: float | None = None
        self._gave_up: Preempted | None = None

    def read(self, name: str) -> bytes | None:
        """The content of an object, or None if there is none."""
        found = self.read_tagged(name)
        return found[0] if found else None

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """The content of an object and the tag of this version of it."""

        def get(client: Any) -> tuple[bytes, str]:
            answer = client.get_object(Bucket=self.bucket, Key=self.prefix + name)
            with closing(answer["Body"]) as stream:
                return b"".join(read_chunks(self.address, stream)), str(answer["ETag"])

        return self._unless_missing(get)

    def download(self, name: str, path: Path) -> bool:
        """Write an object to a file; False if there is none."""
        return self._unless_missing(lambda client: self._copy(client, name, path)) is not None

    def write(self, name: str, content: bytes, *, only_new: bool = False, only_over: str | None = None) -> str:
        """Put an object at once; with a condition, Refused where the store knows conditions. Returns its tag."""
        options: dict[str, Any] = {"ContentMD5": _md5(content)}
        options |= {"IfNoneMatch": "*"} if only_new else {"IfMatch": only_over} if only_over else {}

        def put(client: Any) -> str:
            answer = _conditional(
                client.put_object, Bucket=self.bucket, Key=self.prefix + name, Body=content, **options
            )
            _require_same(answer, content)
            return str(answer["ETag"])

        return self._lasting(put)

    def upload(self, name: str, path: Path) -> None:
        """Put a file, in parts if it is large."""
        size = path.stat().st_size
        if size <= PART_BYTES:
            self.write(name, path.read_bytes())
            self._sent(size)
            return
        key = {"Bucket": self.bucket, "Key": self.prefix + name}
        upload = self._lasting(lambda client: client.create_multipart_upload(**key))["UploadId"]
        length = max(PART_BYTES, -(-size // MOST_PARTS))
        starts = enumerate(range(0, size, length), 1)
        with ThreadPoolExecutor(THREADS) as pool:
            tags = list(pool.map(lambda each: self._part(key, upload, each[0], _bytes(path, each[1], length)), starts))
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        self._lasting(lambda client: self._complete(client, key, upload, parts, size))

    def list(self, below: str = "") -> dict[str, StoredObject]:
        """The objects whose names begin with `below`."""

        def pages(client: Any) -> dict[str, StoredObject]:
            found = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix + below)
            listed = (each for page in found for each in page.get("Contents", ()))
            return {each["Key"].removeprefix(self.prefix): StoredObject(each["Size"], each["ETag"]) for each in listed}

        return self._lasting(pages)

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects, in this order; those that are gone already are fine."""
        for name in names:
            self._lasting(partial(self._delete, name))

    def _delete(self, name: str, client: Any) -> None:
        client.delete_object(Bucket=self.bucket, Key=self.prefix + name)

    def abort_uploads(self) -> None:
        """Remove the parts that killed uploads have left, which cost money and are not listed as objects."""

        def abort(client: Any) -> None:
            for each in _uploads(client, self.bucket, self.prefix):
                client.abort_multipart_upload(Bucket=self.bucket, Key=each["Key"], UploadId=each["UploadId"])

        try:
            self._lasting(abort)
        except SourceError as error:
            self._report(f"Parts of killed uploads cannot be removed: {error}")

    def _copy(self, client: Any, name: str, path: Path) -> bool:
        answer = client.get_object(Bucket=self.bucket, Key=self.prefix + name)
        with completed(path) as beside, closing(answer["Body"]) as stream, beside.open("wb") as file:
            for chunk in read_chunks(self.address, stream):
                file.write(chunk)
            if file.tell() != answer["ContentLength"]:
                raise RetryableError(f"{file.tell()} of {answer['ContentLength']} bytes arrived")
        return True

    def _part(self, key: Mapping[str, str], upload: str, number: int, content: bytes) -> str:
        def put(client: Any) -> str:
            answer = client.upload_part(
                **key, UploadId=upload, PartNumber=number, Body=content, ContentMD5=_md5(content)
            )
            _require_same(answer, content)
            return str(answer["ETag"])

        tag = self._lasting(put)
        self._sent(len(content))
        return tag

    def _complete(self, client: Any, key: Mapping[str, str], upload: str, parts: Sequence[Any], size: int) -> None:
        from botocore.exceptions import ClientError

        try:
            client.complete_multipart_upload(**key, UploadId=upload, MultipartUpload={"Parts": parts})
        except ClientError as error:
            if status_of(error) != 404:  # else an earlier try has succeeded, and its answer was lost
                raise
        found = client.head_object(**key)["ContentLength"]
        if found != size:
            raise SourceError(f"{self.address}: {key['Key']} has {found} bytes after an upload of {size}.")

    def _unless_missing(self, request: Callable[[Any], T]) -> T | None:
        from botocore.exceptions import ClientError

        def ask(client: Any) -> T | None:
            try:
                return request(client)
            except ClientError as error:
                if error.response["Error"].get("Code") in ("NoSuchKey", "404"):
                    return None
                raise

        return self._lasting(ask)

    def _lasting(self, request: Callable[[Any], T]) -> T:
        """The answer to a request that is repeated while the store is away."""
        began, wait = time.monotonic(), FIRST_WAIT
        while True:
            if self._gave_up:
                raise self._gave_up
            try:
                with translated_errors(self.address):
                    answer = request(self._open())
            except (RetryableError, CredentialsExpired) as failure:
                if time.monotonic() - began + wait > self._patience:
                    raise SourceError(
                        f"{self.address}: {str(failure).rstrip('.')} for {time.monotonic() - began:.0f} s. "
                        f"{self._advice}"
                    ) from failure
                self._note_away(failure)
                self._pause(wait, began, failure)
                wait = min(LONGEST_WAIT, 2 * wait)
            else:
                self._note_back()
                return answer

    def _pause(self, seconds: float, began: float, failure: Exception) -> None:
        """Wait before the next try, unless the process has to stop: then this request and all after it have failed."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            if self._stop_requested() and now - began > STOP_SECONDS:
                self._gave_up = Preempted(
                    f"Stopped while {self.address} did not answer ({str(failure).rstrip('.')}). Run the same command "
                    "to resume from the newest checkpoint that is there."
                )
                raise self._gave_up from failure
            time.sleep(min(LOOK_SECONDS, until - now))

    def _open(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = open_client(RetryPolicy(timeout=SILENT_SECONDS), connections=2 * THREADS)
            return self._client

    def _note_away(self, failure: Exception) -> None:
        with self._lock:
            if isinstance(failure, CredentialsExpired):
                self._client = None  # a new one reads profiles and tokens again
            if self._away_since is None:
                self._away_since = time.monotonic()
                self._report(f"{self.address}: {str(failure).rstrip('.')}. Waiting up to {self._patience:.0f} s.")

    def _note_back(self) -> None:
        with self._lock:
            if self._away_since is not None:
                self._report(f"{self.address}: back after {time.monotonic() - self._away_since:.0f} s.")
                self._away_since = None


def _conditional(put: Callable[..., Any], **options: Any) -> Any:
    from botocore.exceptions import ClientError

    try:
        return put(**options)
    except ClientError as error:
        if status_of(error) == 412:
            raise Refused from error
        if status_of(error) == 409:
            raise RetryableError("another request for the same object was faster") from error
        raise


def _uploads(client: Any, bucket: str, prefix: str) -> Sequence[Mapping[str, str]]:
    from botocore.exceptions import ClientError

    try:
        found: Sequence[Mapping[str, str]] = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get(
            "Uploads", ()
        )
        return found
    except ClientError as error:
        if status_of(error) == 404:  # of some stores, where there are none
            return ()
        raise


def _bytes(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


def _md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _require_same(answer: Mapping[str, Any], content: bytes) -> None:
    """Compare with the server's own sum, where its tag is one: not under keys of its own (KMS) or the client's."""
    tag = str(answer.get("ETag", "")).strip('"')
    has_key = answer.get("SSECustomerAlgorithm") or str(answer.get("ServerSideEncryption", "")).startswith("aws:kms")
    is_sum = len(tag) == 32 and not has_key
    if is_sum and tag != hashlib.md5(content, usedforsecurity=False).hexdigest():
        raise RetryableError("the server stored other bytes than were sent")
