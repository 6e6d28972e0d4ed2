"""Files on the web without encryption, such as those of a server in the same building."""

from attune.sources.https import SOURCE

__all__ = ["SOURCE"]
