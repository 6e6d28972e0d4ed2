"""Addresses as they may be shown and written: without the words that open doors."""

import hashlib
import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

# What opens a door by itself: signatures of S3, CloudFront, Google and Azure; the usual names of tokens and passwords.
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
    """The address without user, password and signature; what is left still says which file is meant."""
    parts = _web_parts(address)
    if parts is None:
        return address
    words = parse_qsl(parts.query, True)
    is_signed = any(_SIGNATURE.fullmatch(name) for name, _ in words)
    kept = [(name, _shown_value(name, value)) for name, value in words if not _opens(name, is_signed)]
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, urlencode(kept), parts.fragment))


def has_secrets(address: str) -> bool:
    """Whether the address lets in whoever has it."""
    parts = _web_parts(address)
    if parts is None:
        return False
    names = [name for name, _ in parse_qsl(parts.query, True)]
    return "@" in parts.netloc or any(_SECRET.fullmatch(name) or name.lower() == "key" for name in names)


def _web_parts(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
    except ValueError:  # no address at all, so nothing of it opens anything
        return None
    return parts if parts.scheme.lower() in ("http", "https") else None


def _opens(name: str, is_signed: bool) -> bool:
    return bool(_SECRET.fullmatch(name) or (is_signed and _OF_A_SIGNATURE.fullmatch(name)))


def _shown_value(name: str, value: str) -> str:
    """`key` may be what opens a door, or which file is meant: as a digest it tells files apart and opens nothing."""
    if name.lower() != "key" or _DIGEST.fullmatch(value):
        return value
    return f"~{hashlib.sha256(value.encode()).hexdigest()[:8]}"


def without_secrets(text: str) -> str:
    """Any text with the addresses in it as they may be shown."""
    return _WEB_ADDRESS.sub(lambda found: shown(found[0]), text)
