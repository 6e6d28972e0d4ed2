"""Addresses as they may be shown and written: without the words that open doors."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

# Parameters that sign an address or name its bearer: those of S3, CloudFront, Google, Azure, and the usual names.
_SECRET = re.compile(
    r"x-(amz|goog|oss|cos)-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|sig|se|sp|sv|sr|st|"
    r"skoid|sktid|ske|sks|skv|.*token.*|.*secret.*|.*password.*|(api|access)[-_]?key|auth(orization)?|key",
    re.IGNORECASE,
)
_WEB_ADDRESS = re.compile(r"\b(?:https?|s3|hf)://[^\s'\"<>]+", re.IGNORECASE)


def shown(address: str) -> str:
    """The address without user, password and signature; what is left still says which file is meant."""
    try:
        parts = urlsplit(address)
    except ValueError:  # no address at all, so nothing of it opens anything
        return address
    if parts.scheme.lower() not in ("http", "https"):
        return address
    kept = [(name, value) for name, value in parse_qsl(parts.query, True) if not _SECRET.fullmatch(name)]
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, urlencode(kept), parts.fragment))


def without_secrets(text: str) -> str:
    """Any text with the addresses in it as they may be shown."""
    return _WEB_ADDRESS.sub(lambda found: shown(found[0]), text)
