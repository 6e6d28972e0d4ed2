"""The rules of Whisper's English normalizer around numbers and spelling, applied in its order: the order matters."""

import re
import unicodedata
from collections.abc import Mapping

from attune.text.normalizers._english_numbers import digits
from attune.text.normalizers.whisper_basic import without_brackets

_FILLERS = re.compile(r"\b(hmm|mm|mhm|mmm|uh|um)\b")

_COLLOQUIAL = {
    "won't": "will not",
    "can't": "can not",
    "let's": "let us",
    "ain't": "aint",
    "y'all": "you all",
    "wanna": "want to",
    "gotta": "got to",
    "gonna": "going to",
    "i'ma": "i am going to",
    "imma": "i am going to",
    "woulda": "would have",
    "coulda": "could have",
    "shoulda": "should have",
    "ma'am": "madam",
}

_TITLES = {
    "mr": "mister",
    "mrs": "missus",
    "st": "saint",
    "dr": "doctor",
    "prof": "professor",
    "capt": "captain",
    "gov": "governor",
    "ald": "alderman",
    "gen": "general",
    "sen": "senator",
    "rep": "representative",
    "pres": "president",
    "rev": "reverend",
    "hon": "honorable",
    "asst": "assistant",
    "assoc": "associate",
    "lt": "lieutenant",
    "col": "colonel",
    "jr": "junior",
    "sr": "senior",
    "esq": "esquire",
}

# One after the other: `it'sn't` has to lose its `n't` before its `'s` can end a word.
_CONTRACTIONS = [
    (re.compile(rf"{contraction}\b"), f" {words}")
    for contraction, words in {
        "'d been": "had been",
        "'s been": "has been",
        "'d gone": "had gone",
        "'s gone": "has gone",
        "'d done": "had done",
        "'s got": "has got",
        "n't": "not",
        "'re": "are",
        "'s": "is",
        "'d": "would",
        "'ll": "will",
        "'t": "not",
        "'ve": "have",
        "'m": "am",
    }.items()
]

_WORDS = _COLLOQUIAL | {title: f"{words} " for title, words in _TITLES.items()}
_KNOWN_WORD = re.compile(rf"\b({'|'.join(_WORDS)})\b")

_NUMBER_SYMBOLS = ".%$¢€£"
_LETTERS_WITHOUT_MARKS = {
    "œ": "oe",
    "ø": "o",
    "æ": "ae",
    "Æ": "AE",  # what NFKD makes of ᴭ, after all else is in lower case
    "ß": "ss",
    "đ": "d",
    "ð": "d",
    "þ": "th",
    "ł": "l",
}


class _Plain(dict[int, str]):
    """What becomes of each character: marks go, symbols become spaces. Filled as characters are met."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = _plain(chr(code))
        return plain


def _plain(character: str) -> str:
    if character in _NUMBER_SYMBOLS:
        return character
    category = unicodedata.category(character)
    if category == "Mn":
        return ""
    return " " if category[0] in "MSP" else _LETTERS_WITHOUT_MARKS.get(character, character)


_PLAIN = _Plain()


def normalize(text: str, spellings: Mapping[str, str]) -> str:
    """Text by Whisper's English rules, with each word spelled as `spellings` has it."""
    text = _FILLERS.sub("", without_brackets(text.lower()))
    text = _written_out(re.sub(r"\s+'", "'", text))
    text = re.sub(r"(\d),(\d)", r"\1\2", text)
    text = re.sub(r"\.([^0-9]|$)", r" \1", text)
    text = digits(unicodedata.normalize("NFKD", text).translate(_PLAIN))
    text = " ".join(spellings.get(word, word) for word in text.split())
    # Symbols that have no number by them say nothing.
    text = re.sub(r"[.$¢€£]([^0-9])", r" \1", text)
    text = re.sub(r"([^0-9])%", r"\1 ", text)
    return re.sub(r"\s+", " ", text)


def _written_out(text: str) -> str:
    text = _KNOWN_WORD.sub(lambda match: _WORDS[match[0]], text)
    if "'" in text:
        for contraction, words in _CONTRACTIONS:
            text = contraction.sub(words, text)
    return text
