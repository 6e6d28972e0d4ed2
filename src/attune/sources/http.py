"""Files on the web without encryption, such as those of a local server; otherwise like `https`."""

from attune.sources.https import SOURCE

__all__ = ["SOURCE"]
