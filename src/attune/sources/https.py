"""Files on the web: `https://host/path`, with `#sha256=…` when it must be exactly that file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urldefrag, urlsplit

from attune.errors import SourceError
from attune.sources import Source
from attune.sources._cache import Cache, Entry
from attune.sources._fetch import Ask, Listing, Remote, Unchanged, bring
from attune.sources._http import WebFile, credentials
from attune.sources._secrets import shown
from attune.sources._verify import Hashes


@dataclass(frozen=True, slots=True)
class _Address:
    """A web address: how to get it, how to speak of it, and which content it must have."""

    url: str
    shown: str
    host: str
    name: str
    sha256: str | None


def find(address: str, cache: Cache) -> Path:
    """The file, as it is on the web now; one with a hash is never asked about again."""
    web = _read(address)

    def ask(known: Entry | None, locked: Entry | None) -> Listing:
        version = next(iter(known.files.values())).version if known else None
        file = WebFile(web.url, cache.patience.timeout, credentials(web.host), known=version or None)
        return Listing({web.name: Remote(file.open, hashes=Hashes(sha256=web.sha256))})

    return bring(web.shown, ask, cache, is_fixed=web.sha256 is not None)


def beside(address: str, names: Sequence[str], cache: Cache) -> Ask:
    """Files in the same folder of the web, each asked for by its own address."""
    web = _read(address)
    folder, headers = web.url.partition("?")[0].rpartition("/")[0], credentials(web.host)

    def ask(known: Entry | None, locked: Entry | None) -> Listing:
        if known and set(names) < set(known.files):
            raise Unchanged  # nobody asks for thousands of files to hear that they are what they were
        files = {name: WebFile(f"{folder}/{quote(name)}", cache.patience.timeout, headers) for name in names}
        return Listing({name: Remote(file.open) for name, file in files.items()}, is_folder=True)

    return ask


def _read(address: str) -> _Address:
    url, fragment = urldefrag(address)
    try:
        parts = urlsplit(url)
        is_sound = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise SourceError(f"{shown(address)} is not a web address. Expected https://HOST/PATH.")
    if "@" in parts.netloc:
        raise SourceError(
            f"{shown(address)} was given with a user and password in it, which would end up in files and logs. "
            f"Put them into ~/.netrc: machine {parts.hostname} login USER password PASSWORD"
        )
    url = quote(url, safe="%/:=&?~#+!$,;'@()*[]")  # letters and spaces as browsers send them
    name = PurePosixPath(unquote(parts.path)).name
    name = re.sub(r"[^\w.-]", "_", name).lstrip(".")[-100:] or "file"
    return _Address(url, shown(address), str(parts.hostname), name, _sha256(fragment, address))


def _sha256(fragment: str, address: str) -> str | None:
    if not fragment:
        return None
    found = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", fragment)
    if not found:
        raise SourceError(f"{shown(address)}: after # only sha256=… is understood, with 64 hexadecimal digits.")
    return found[1].lower()


SOURCE = Source(find, beside=beside)
