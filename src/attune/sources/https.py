"""Files on the web, kept in the cache. A file in the cache under its final name is complete."""

import hashlib
import re
import shutil
import time
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from ssl import SSLError
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from attune.errors import SourceError
from attune.files import completed

_PASSING = (408, 429)  # of the errors that are the client's, those that another try may mend


class _TryAgain(Exception):
    """The network failed in a way that may pass."""


@dataclass(frozen=True, slots=True)
class Download:
    """Fetches an address unless the cache has it; waits so many seconds before each new try."""

    timeout: float = 30.0
    waits: tuple[float, ...] = (1.0, 5.0, 15.0)

    def __call__(self, url: str, cache: Path) -> Path:
        """The complete file, under a name that no other address has."""
        path = cache / "web" / hashlib.sha256(url.encode()).hexdigest()[:16] / _file_name(url)
        if path.exists():
            return path
        try:
            with completed(path) as partial:
                self._fetch(url, partial)
        except OSError as error:
            raise SourceError(
                f"{url} could not be written to {path.parent}: {error.strerror}. "
                "Make room there, or name another folder in ATTUNE_CACHE."
            ) from error
        return path

    def _fetch(self, url: str, partial: Path) -> None:
        for wait in (*self.waits, None):
            try:
                return self._try(url, partial)
            except _TryAgain as failure:
                if wait is None:
                    raise SourceError(
                        f"{url} could not be fetched: {failure}, {len(self.waits) + 1} times. "
                        "Check the address and the network, or download it yourself and give its path."
                    ) from failure
                time.sleep(wait)

    def _try(self, url: str, partial: Path) -> None:
        try:
            request = Request(url, headers={"User-Agent": "attune", "Accept-Encoding": "identity"})
            with urlopen(request, timeout=self.timeout) as response, partial.open("wb") as file:
                shutil.copyfileobj(response, file, 1 << 20)
                announced = response.headers["Content-Length"]
        except HTTPError as error:
            raise _refusal(url, error) from error
        except (URLError, TimeoutError, ConnectionError, SSLError, HTTPException) as error:
            raise _TryAgain(str(getattr(error, "reason", error) or type(error).__name__)) from error
        size = partial.stat().st_size
        if announced is not None and size != int(announced):
            raise _TryAgain(f"only {size} of {announced} bytes came")


def _refusal(url: str, error: HTTPError) -> Exception:
    if error.code >= 500 or error.code in _PASSING:
        return _TryAgain(f"the server answered {error.code} {error.reason}")
    return SourceError(
        f"{url} could not be fetched: the server answered {error.code} {error.reason}. Check the address."
    )


def _file_name(url: str) -> str:
    """The last part of the address's path, with nothing in it that a file name should not have."""
    try:
        address = urlsplit(url)
        is_sound = bool(address.hostname) and address.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise SourceError(f"{url} is not a web address. Expected https://HOST/PATH.")
    name = PurePosixPath(unquote(address.path)).name
    return re.sub(r"[^\w.-]", "_", name).lstrip(".")[-100:] or "file"


SOURCE = Download()
