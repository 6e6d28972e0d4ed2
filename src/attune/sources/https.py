"""Files on the web: `https://host/path`, with `#sha256=…` when it must be exactly that file."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from attune.sources import Source
from attune.sources._addresses import read_web, require_openable
from attune.sources._cache import Cache, Entry
from attune.sources._fetch import ListFiles, Listing, RemoteFile, fetch
from attune.sources._http import WebFile, netrc_credentials, web_ranges
from attune.sources._retry import RANGE_READS, NotModified
from attune.sources._verify import Hashes


def find(address: str, cache: Cache) -> Path:
    """The file in its present version; one with a hash is never requested again."""
    web = read_web(address)

    def list_files(known: Entry | None, locked: Entry | None) -> Listing:
        require_openable(web.url)
        version = next(iter(known.files.values())).version if known else None
        file = WebFile(
            web.url,
            cache.retry.timeout,
            netrc_credentials(web.host),
            known=version or None,
            is_verified=web.sha256 is not None,
        )
        return Listing({web.name: RemoteFile(file.open, hashes=Hashes(sha256=web.sha256))})

    return fetch(web.shown, list_files, cache, is_fixed=web.sha256 is not None)


def beside(address: str, names: Sequence[str], cache: Cache) -> ListFiles:
    """Files in the same folder of the web, each requested by its own address."""
    web = read_web(address)
    folder, credentials = web.url.partition("?")[0].rpartition("/")[0], netrc_credentials(web.host)

    def list_files(known: Entry | None, locked: Entry | None) -> Listing:
        if known and set(names) < set(known.files):
            raise NotModified  # thousands of requests would only confirm it
        files = {name: WebFile(f"{folder}/{quote(name)}", cache.retry.timeout, credentials) for name in names}
        return Listing({name: RemoteFile(file.open) for name, file in files.items()}, is_folder=True)

    return list_files


def _file_at(address: str) -> WebFile:
    require_openable(address)
    web = read_web(address)
    return WebFile(web.url, RANGE_READS.timeout, netrc_credentials(web.host))


SOURCE = Source(find, beside=beside, ranges=web_ranges(_file_at))
