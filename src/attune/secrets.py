"""Addresses without credentials, as they may be printed, logged and stored.

Whatever may open an address stays in memory: every user and password, and every query value whose name is not known to
be harmless.
"""

import hashlib
import re
from urllib.parse import parse_qsl, urlencode

# Query parameters that are credentials: left out, since a file is the same whoever asks for it.
_SECRET = re.compile(
    r"x-(amz|goog|oss|cos|ms)-.*|awsaccesskeyid|googleaccessid|key-pair-id|sig|.*signature|auth(orization)?|pass|pw|"
    r".*(token|secret|password|passwd|pwd|passphrase|credentials?|jwt|bearer)|"
    r".*(api|access|private|secret|auth|account|shared)[-_]?key([-_]?id)?",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(r"(x-(amz|goog|oss|cos)-)?signature|sig", re.IGNORECASE)
_OF_A_SIGNATURE = re.compile(r"expires|policy|se|sp|spr|sv|sr|st|sip|skoid|sktid|skt|ske|sks|skv", re.IGNORECASE)

# Those that open nothing, as long as their values look like it. All others are shown as a digest.
_HARMLESS = re.compile(
    r"download|dl|raw|v|ver|version|versionid|rev|revision|ref|branch|commit|format|type|ext|lang|language|split|subset|"
    r"config|part|page|limit|offset|file|filename|name|path",
    re.IGNORECASE,
)
_HARMLESS_VALUE = re.compile(r"[\w. /+-]{0,200}")
_HARMLESS_FRAGMENT = re.compile(r"((sha256|sha1|md5)=[0-9a-f]*)?(#?beside)?", re.IGNORECASE)
_DIGEST = re.compile(r"~[0-9a-f]{8}")

_LOCAL = ("file", "attune")  # a path may contain anything, and opens nothing
_SCHEME = r"[a-z][a-z0-9_.+-]{0,100}://"
_ADDRESS = re.compile(
    rf"(?P<scheme>{_SCHEME})(?P<place>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?", re.IGNORECASE | re.DOTALL
)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*|:PORT)?")  # PORT: as messages ask for it
# An address in a text ends where the next one begins.
_IN_TEXT = re.compile(rf"(?<![a-z0-9_.+-]){_SCHEME}(?:(?![,;|]?{_SCHEME})[^\s'\"<>`\\])*", re.IGNORECASE)
_AFTER = ".,;:!?)]}"  # of the sentence around an address, not of its query


def shown(address: str) -> str:
    """The address without user, password and signature; the rest still identifies the file."""
    parts = _parts(address)
    if parts is None:
        return address
    scheme, place, query, fragment = parts
    words = parse_qsl(query, True)
    is_signed = any(_SIGNATURE.fullmatch(name) for name, _ in words)
    kept = urlencode([_shown_word(*word) for word in words if not _opens(word[0], is_signed)])
    if not _HARMLESS_FRAGMENT.fullmatch(fragment):
        fragment = _digest(fragment)
    return f"{scheme}{_without_user(place)}{kept and f'?{kept}'}{fragment and f'#{fragment}'}"


def has_secrets(address: str) -> bool:
    """Whether the address contains what may be a credential."""
    parts = _parts(address)
    if parts is None:
        return False
    _, place, query, fragment = parts
    return (
        _without_user(place) != place
        or any(not _is_harmless(*word) for word in parse_qsl(query, True))
        or not _HARMLESS_FRAGMENT.fullmatch(fragment)
    )


def digested(address: str) -> list[str]:
    """The query parameters of which only a digest is left, so that the address cannot be opened any more."""
    parts = _parts(address)
    words = parse_qsl(parts[2], True) if parts else []
    return [name for name, value in words if _DIGEST.fullmatch(value) or _DIGEST.fullmatch(name)]


def without_secrets(text: str) -> str:
    """A text with the credentials removed from its addresses."""
    return _IN_TEXT.sub(lambda found: _shown_in_text(found[0]), text)


def _shown_in_text(found: str) -> str:
    address = found.rstrip(_AFTER)
    return shown(address) + found[len(address) :]


def _parts(address: str) -> tuple[str, str, str, str] | None:
    """Scheme with `://`, place, query and fragment; None for a path, which has no credentials."""
    found = _ADDRESS.fullmatch(address)
    if not found or found["scheme"][:-3].lower() in _LOCAL:
        return None
    return found["scheme"].lower(), found["place"], found["query"] or "", found["fragment"] or ""


def _without_user(place: str) -> str:
    host, slash, path = place.partition("/")
    host = host.rpartition("@")[2]
    if not _HOST.fullmatch(host):
        # What follows the colon is no port: a password with a slash, as keys of S3 have, or without its host.
        return place.rpartition("@")[2] if "@" in place else "…"
    return host + slash + (without_secrets(path) if "://" in path else path)


def _opens(name: str, is_signed: bool) -> bool:
    return bool(_SECRET.fullmatch(name) or (is_signed and _OF_A_SIGNATURE.fullmatch(name)))


def _is_harmless(name: str, value: str) -> bool:
    return bool(_HARMLESS.fullmatch(name) and _HARMLESS_VALUE.fullmatch(value))


def _shown_word(name: str, value: str) -> tuple[str, str]:
    """A value may be a credential or say which file: a digest of it still distinguishes files, and gives no access."""
    if _is_harmless(name, value):
        return name, value
    return (name, _digest(value)) if value else (_digest(name), value)


def _digest(value: str) -> str:
    if _DIGEST.fullmatch(value):
        return value
    return f"~{hashlib.sha256(value.encode(errors='surrogatepass')).hexdigest()[:8]}"
