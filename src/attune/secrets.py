"""URLs without credentials, as they may be printed, logged and stored."""

import hashlib
import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

# Query parameters that are credentials: signatures of S3, CloudFront, Google and Azure; tokens and passwords.
_SECRET = re.compile(
    r"x-(amz|goog|oss|cos)-.*|awsaccesskeyid|googleaccessid|key-pair-id|signature|sig|"
    r".*token|.*secret|.*password|(api|access)[-_]?key|auth(orization)?",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(r"(x-(amz|goog|oss|cos)-)?signature|sig", re.IGNORECASE)
_OF_A_SIGNATURE = re.compile(r"expires|policy|se|sp|spr|sv|sr|st|sip|skoid|sktid|skt|ske|sks|skv", re.IGNORECASE)
_DIGEST = re.compile(r"~[0-9a-f]{8}")
_WEB_ADDRESS = re.compile(r"\b(?:https?|s3|hf)://[^\s'\"<>]+", re.IGNORECASE)


def shown(address: str) -> str:
    """The URL without user, password and signature; the rest still identifies the file."""
    parts = _web_parts(address)
    if parts is None:
        return address
    words = parse_qsl(parts.query, True)
    is_signed = any(_SIGNATURE.fullmatch(name) for name, _ in words)
    kept = [(name, _shown_value(name, value)) for name, value in words if not _opens(name, is_signed)]
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, urlencode(kept), parts.fragment))


def has_secrets(address: str) -> bool:
    """Whether the URL contains credentials."""
    parts = _web_parts(address)
    if parts is None:
        return False
    names = [name for name, _ in parse_qsl(parts.query, True)]
    return "@" in parts.netloc or any(_SECRET.fullmatch(name) or name.lower() == "key" for name in names)


def _web_parts(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
    except ValueError:  # not a URL, so it has no credentials
        return None
    return parts if parts.scheme.lower() in ("http", "https") else None


def _opens(name: str, is_signed: bool) -> bool:
    return bool(_SECRET.fullmatch(name) or (is_signed and _OF_A_SIGNATURE.fullmatch(name)))


def _shown_value(name: str, value: str) -> str:
    """`key` may be a credential or a file's name: a digest of it still distinguishes files, and gives no access."""
    if name.lower() != "key" or _DIGEST.fullmatch(value):
        return value
    return f"~{hashlib.sha256(value.encode()).hexdigest()[:8]}"


def without_secrets(text: str) -> str:
    """A text with the credentials removed from its URLs."""
    return _WEB_ADDRESS.sub(lambda found: shown(found[0]), text)
