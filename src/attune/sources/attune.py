"""Files of the package itself, such as `attune://demo/train.jsonl`."""

from importlib.resources import files
from pathlib import Path

from attune.catalog import suggestion
from attune.errors import SourceError
from attune.sources import Source
from attune.sources._cache import Cache


def find(address: str, cache: Cache) -> Path:
    """Where the package is installed, so that the files next to it are found too."""
    package = Path(str(files("attune")))
    name = address.partition("://")[2]
    path = package / name
    if not path.resolve().is_relative_to(package.resolve()):
        raise SourceError(f"{address} is not inside the package. For a local file, give its path.")
    if not path.exists():
        neighbours = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        raise SourceError(f"attune does not ship {name!r}{suggestion(path.name, neighbours) or '.'}")
    return path


SOURCE = Source(find)
