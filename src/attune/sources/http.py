"""Files on the web without encryption, such as those of a local server: as `https`."""

from attune.sources.https import SOURCE

__all__ = ["SOURCE"]
