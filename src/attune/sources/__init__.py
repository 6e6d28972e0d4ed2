"""Where things come from: a plain path, or an address whose scheme is the name of a source.

Each source exports SOURCE, which takes the address and the cache folder, and answers with a path that is there.
"""

import re
from pathlib import Path

from attune import catalog
from attune.errors import SourceError
from attune.sources._content import content_of, contents_of
from attune.sources._ranges import is_address, list_prefix, read_range, size_of

__all__ = ["content_of", "contents_of", "is_address", "list_prefix", "locate", "read_range", "size_of"]

_SCHEME = re.compile(r"([a-z][a-z0-9+-]*)://|(file):", re.IGNORECASE)


def locate(source: str, cache: Path) -> Path:
    """The file or folder that `source` names; what is far away is fetched into `cache` once."""
    match = _SCHEME.match(source)
    scheme = (match[1] or match[2]).lower() if match else "file"
    known = catalog.names("sources")
    if scheme not in known:
        raise SourceError(f"There is no source {scheme!r} to get {source} from{catalog.suggestion(scheme, known)}.")
    path: Path = catalog.find("sources", scheme)(source, cache)
    return path
