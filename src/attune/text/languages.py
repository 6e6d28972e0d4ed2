"""What the code of a language says about how it is written."""

from collections.abc import Iterable

UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})  # written without spaces between words


def without_region(code: str) -> str:
    """The language alone: `sv-SE` and `sv_SE` are `sv`."""
    return code.replace("_", "-").partition("-")[0].lower()


def is_spaced(language: str | None) -> bool:
    """Whether words are written with spaces between them; a language that is not known is taken to be."""
    return language is None or without_region(language) not in UNSPACED


def joined(texts: Iterable[str], language: str | None) -> str:
    """What was said one after another as one text, with a space in between where the language has spaces."""
    said = (text.strip() for text in texts)
    return (" " if is_spaced(language) else "").join(text for text in said if text)
