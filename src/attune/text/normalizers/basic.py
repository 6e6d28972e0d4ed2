"""Words only, in any script: no case, no punctuation, no symbols, compatibility forms (NFKC).

Marks belong to their letters, so Hindi vowel signs, Thai tones and Arabic vowels stay. An apostrophe inside a word
belongs to it too (`раз'яднаць`, `l'homme`, `don't`), however it was typed. Everything else that is neither letter,
mark nor digit parts words, except what only shapes them and is removed without a trace.
"""

import re
import unicodedata

# Typed for the apostrophe: grave and acute accent, quotation marks, prime, modifier letters, Armenian, Hebrew geresh.
APOSTROPHES = "'`´‘’‛′ʻʼʽꞌ＇｀՚׳"

# Catalan's dot inside a word (col·lecció), its Greek double, the stroke that stretches an Arabic word, and the Armenian
# marks of stress, exclamation and question, which stand on a vowel in the middle of a word (ի՞նչ).
JOINERS = "·\u0387ـ՛՜՞"

# NFKC takes the Thai and the Lao vowel AM apart, and nobody writes it so.
_VOWELS_AM = {"\u0e4d\u0e32": "\u0e33", "\u0ecd\u0eb2": "\u0eb3"}

_EDGE_APOSTROPHES = re.compile(r"(?<![^\s'])'+|'+(?![^\s'])|'{2,}")


class _Characters(dict[int, str]):
    """What becomes of each character: kept, removed, or a space. Filled as characters are met."""

    def __missing__(self, code: int) -> str:
        self[code] = kept = _keep(chr(code))
        return kept


def _keep(character: str) -> str:
    if character in APOSTROPHES:
        return "'"
    category = unicodedata.category(character)
    is_shaping = (
        category in ("Cf", "Me") or character in JOINERS or "VARIATION SELECTOR" in unicodedata.name(character, "")
    )
    if is_shaping:
        return ""
    return " " if category[0] in "PSZ" or category in ("Cc", "Cs") else character


_CHARACTERS = _Characters()


def normalize(text: str) -> str:
    """The words of `text`, case-folded, with a single space between them."""
    # Symbols go first: NFKC would turn ™ into letters and ´ into a space with a mark. Folding can bring new ones.
    text = unicodedata.normalize("NFC", text).translate(_CHARACTERS)
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).translate(_CHARACTERS)
    for apart, together in _VOWELS_AM.items():
        text = text.replace(apart, together)
    return unicodedata.normalize("NFC", " ".join(_EDGE_APOSTROPHES.sub(" ", text).split()))


NORMALIZER = normalize
