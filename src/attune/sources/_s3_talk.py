"""How boto3 is asked, and its errors as what a user can do about them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attune.errors import SourceError
from attune.sources._cache import Patience
from attune.sources._fetch import TryAgain

_CREDENTIALS = "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or AWS_PROFILE."
_REFUSALS = {
    "ExpiredToken": "the credentials have expired. Get new ones",
    "ExpiredTokenException": "the credentials have expired. Get new ones",
    "RequestExpired": "the signature has expired. Get new credentials, or set this machine's clock",
    "RequestTimeTooSkewed": "this machine's clock is wrong. Set it",
    "InvalidAccessKeyId": "the access key is not known",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "InvalidToken": "the session token is wrong",
    "NoSuchBucket": "there is no such bucket. Check its name and AWS_ENDPOINT_URL",
    "NoSuchKey": "there is no such key. Check it; names in S3 are exact to the letter",
}
_PASSING = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "RequestLimitExceeded")


def open_client(patience: Patience, retries: int = 1, connections: int = 10) -> Any:
    """A client for this environment's S3; without any credentials, for what is public."""
    try:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise SourceError("s3:// needs boto3, which is not installed: pip install 'attune-speech[s3]'") from error
    try:
        session = boto3.session.Session()
        words: dict[str, Any] = {
            "connect_timeout": patience.timeout,
            "read_timeout": patience.timeout,
            "max_pool_connections": connections,
            "retries": {"total_max_attempts": retries, "mode": "standard"},
        }
        if session.get_credentials() is None:
            words["signature_version"] = UNSIGNED
        if not session.region_name:
            words["region_name"] = "us-east-1"  # any does for other endpoints, and S3 itself says which is right
        client = session.client("s3", config=Config(**words))
        if "amazonaws.com" in client.meta.endpoint_url:
            return client
        return session.client("s3", config=Config(**words, s3={"addressing_style": "path"}))
    except (BotoCoreError, ValueError) as error:
        raise SourceError(f"S3 cannot be asked: {error}. {_CREDENTIALS}") from error


@contextmanager
def told(address: str, retries: bool = True) -> Iterator[None]:
    """boto3's errors, as messages or as failures that may pass."""
    try:
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError
    except ImportError as error:
        raise SourceError("s3:// needs boto3, which is not installed: pip install 'attune-speech[s3]'") from error
    try:
        yield
    except ClientError as error:
        refusal = _refusal(address, error.response)
        raise (refusal if retries else _final(address, refusal)) from error
    except (ConnectionError, HTTPClientError) as error:
        refusal = TryAgain(f"{type(error).__name__}: {error}")
        raise (refusal if retries else _final(address, refusal)) from error
    except BotoCoreError as error:
        raise SourceError(f"{address}: {error}. {_CREDENTIALS}") from error


def _final(address: str, failure: Exception) -> SourceError:
    if isinstance(failure, SourceError):
        return failure
    return SourceError(f"{address}: {failure}. Check the network and AWS_ENDPOINT_URL, and try again.")


def _refusal(address: str, response: Any) -> Exception:
    code, status = response["Error"].get("Code", ""), response["ResponseMetadata"]["HTTPStatusCode"]
    if status >= 500 or status == 429 or code in _PASSING:
        return TryAgain(f"the server answered {status} {code}")
    if code in _REFUSALS:
        more = f" {_CREDENTIALS}" if status in (400, 403) else ""
        return SourceError(f"{address}: {_REFUSALS[code]}.{more}")
    if status in (401, 403):
        return SourceError(f"{address}: access is refused ({code}). {_CREDENTIALS}")
    return SourceError(f"{address}: the server answered {status} {code}: {response['Error'].get('Message', '')}")
