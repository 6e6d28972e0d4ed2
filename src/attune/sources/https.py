"""Files on the web: `https://host/path`, with `#sha256=…` when it must be exactly that file."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from attune.sources import Source
from attune.sources._addresses import read_web
from attune.sources._cache import Cache, Entry
from attune.sources._fetch import Ask, Listing, Remote, Unchanged, bring
from attune.sources._http import WebFile, credentials
from attune.sources._verify import Hashes


def find(address: str, cache: Cache) -> Path:
    """The file, as it is on the web now; one with a hash is never asked about again."""
    web = read_web(address)

    def ask(known: Entry | None, locked: Entry | None) -> Listing:
        version = next(iter(known.files.values())).version if known else None
        file = WebFile(web.url, cache.patience.timeout, credentials(web.host), known=version or None)
        return Listing({web.name: Remote(file.open, hashes=Hashes(sha256=web.sha256))})

    return bring(web.shown, ask, cache, is_fixed=web.sha256 is not None)


def beside(address: str, names: Sequence[str], cache: Cache) -> Ask:
    """Files in the same folder of the web, each asked for by its own address."""
    web = read_web(address)
    folder, headers = web.url.partition("?")[0].rpartition("/")[0], credentials(web.host)

    def ask(known: Entry | None, locked: Entry | None) -> Listing:
        if known and set(names) < set(known.files):
            raise Unchanged  # nobody asks for thousands of files to hear that they are what they were
        files = {name: WebFile(f"{folder}/{quote(name)}", cache.patience.timeout, headers) for name in names}
        return Listing({name: Remote(file.open) for name, file in files.items()}, is_folder=True)

    return ask


SOURCE = Source(find, beside=beside)
