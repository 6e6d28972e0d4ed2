"""Text as it is: upper case, punctuation and all."""


def normalize(text: str) -> str:
    """The same text."""
    return text


NORMALIZER = normalize
