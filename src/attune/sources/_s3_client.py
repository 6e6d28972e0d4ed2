"""How boto3 is opened, and the one place that translates its errors."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from attune.errors import SourceError
from attune.sources._fetch import CHUNK
from attune.sources._retry import RANGE_READS, RetryableError, RetryPolicy, is_transient

CONNECT_SECONDS = 10.0  # a server that is there answers sooner, and a caller that has to stop waits no longer
_NOT_INSTALLED = "s3:// needs boto3, which is not installed. Run: pip install 'attune-speech[s3]'"
_CREDENTIALS = "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or AWS_PROFILE."
_REFUSALS = {
    "ExpiredToken": "the credentials have expired. Get new ones",
    "ExpiredTokenException": "the credentials have expired. Get new ones",
    "RequestExpired": "the signature has expired. Get new credentials, or set this machine's clock",
    "RequestTimeTooSkewed": "this machine's clock is wrong. Set it",
    "InvalidAccessKeyId": "the access key is unknown",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "InvalidToken": "the session token is wrong",
    "NoSuchBucket": "no such bucket. Check its name and AWS_ENDPOINT_URL",
    "NoSuchKey": "no such key. Check it; keys are case-sensitive",
}
_TRANSIENT = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "RequestLimitExceeded")


class CredentialsExpired(SourceError):
    """Credentials that were good once; whoever works for hours reads them again and waits for new ones."""


def open_client(policy: RetryPolicy, attempts: int = 1, connections: int = 10) -> Any:
    """A client for this environment's S3, unsigned without credentials; retries are the caller's, or `attempts`."""
    try:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise SourceError(_NOT_INSTALLED) from error
    try:
        session = boto3.session.Session()
        options: dict[str, Any] = {
            "connect_timeout": min(policy.timeout, CONNECT_SECONDS),
            "read_timeout": policy.timeout,
            "max_pool_connections": connections,
            "response_checksum_validation": "when_required",  # else asked for where it is used
            "retries": {"total_max_attempts": attempts, "mode": "standard"},
        }
        if session.get_credentials() is None:
            options["signature_version"] = UNSIGNED
        if not session.region_name:
            options["region_name"] = "us-east-1"  # S3 corrects it, and other endpoints accept any
        client = session.client("s3", config=Config(**options))
        if "amazonaws.com" in client.meta.endpoint_url:
            return client
        return session.client("s3", config=Config(**options, s3={"addressing_style": "path"}))
    except (BotoCoreError, ValueError) as error:
        raise SourceError(f"S3 client: {error}. {_CREDENTIALS}") from error


def shared_client() -> Any:
    """The client of all range reads of this process and environment; threads may share it."""
    settings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    return _shared_client(os.getpid(), settings)


def forget_shared_clients() -> None:
    """Have the next client read profiles and tokens again."""
    _shared_client.cache_clear()


@lru_cache(maxsize=4)
def _shared_client(process: int, settings: tuple[tuple[str, str], ...]) -> Any:
    return open_client(RANGE_READS, connections=64)


@contextmanager
def translated_errors(address: str) -> Iterator[None]:
    """boto3's errors as RetryableError or SourceError."""
    try:
        from botocore import exceptions as boto
        from urllib3.exceptions import HTTPError
    except ImportError as error:
        raise SourceError(_NOT_INSTALLED) from error
    try:
        yield
    except boto.ClientError as error:
        raise _refusal(address, error.response) from error
    except boto.FlexibleChecksumError as error:
        raise RetryableError(str(error), restart=True) from error
    except (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, HTTPError) as error:
        raise RetryableError(f"{type(error).__name__}: {error}") from error
    except AttributeError as error:
        if "StreamingChecksumBody" not in str(error):
            raise
        # botocore itself fails to read an error (5xx) where a checksum was asked for.
        raise RetryableError("the server answered with an error") from error
    except boto.CredentialRetrievalError as error:
        raise CredentialsExpired(f"{address}: {error}. {_CREDENTIALS}") from error
    except boto.BotoCoreError as error:
        raise SourceError(f"{address}: {error}. {_CREDENTIALS}") from error


def read_chunks(address: str, stream: Any) -> Iterator[bytes]:
    """The body of an object as it arrives."""
    while True:
        try:
            with translated_errors(address):
                chunk = stream.read(CHUNK)
        except OSError as error:
            raise RetryableError(f"{type(error).__name__}: {error}") from error
        if not chunk:
            return
        yield chunk


def status_of(error: Any) -> int:
    """The HTTP status of a ClientError."""
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _refusal(address: str, response: Any) -> Exception:
    code, status = response["Error"].get("Code", ""), response["ResponseMetadata"]["HTTPStatusCode"]
    if is_transient(status) or code in _TRANSIENT:
        return RetryableError(f"the server answered {status} {code}")
    if code in _REFUSALS:
        more = f" {_CREDENTIALS}" if status in (400, 403) else ""
        kind = CredentialsExpired if code.startswith("Expired") else SourceError
        return kind(f"{address}: {_REFUSALS[code]}.{more}")
    if status in (401, 403):
        return SourceError(f"{address}: access denied ({code}). {_CREDENTIALS}")
    return SourceError(f"{address}: the server answered {status} {code}: {response['Error'].get('Message', '')}")
