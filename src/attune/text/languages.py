"""Language codes, and whether a language is written with spaces between words."""

from collections.abc import Iterable

UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})  # written without spaces between words


def base_language(code: str) -> str:
    """The code without its region: `sv-SE` and `sv_SE` are `sv`."""
    return code.replace("_", "-").partition("-")[0].lower()


def is_spaced(language: str | None) -> bool:
    """Whether words are written with spaces between them; assumed if the language is unknown."""
    return language is None or base_language(language) not in UNSPACED


def join_texts(texts: Iterable[str], language: str | None) -> str:
    """Consecutive transcripts as one text, with a space in between where the language has spaces."""
    stripped = (text.strip() for text in texts)
    return (" " if is_spaced(language) else "").join(text for text in stripped if text)
