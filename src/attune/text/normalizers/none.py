"""Text as written: case and punctuation count."""


def normalize(text: str) -> str:
    """The same text."""
    return text


NORMALIZER = normalize
